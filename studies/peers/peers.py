"""Gives the twin's planted faults, and its clean runs, to every tool, and keeps what they answer.

    peers.py --lockstep PROGRAM --scratch FOLDER [--quick] [--all] [--resume] [--only TOOL,…] [--faults NAME,…]

Each answer is kept as soon as it is there; `--resume` goes on where a call was cut off.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import ranks  # noqa: E402
from answer import cannot, shortened  # noqa: E402
from ask_ddp import Curves  # noqa: E402
from ask_debug_mode import DebugModeHashes  # noqa: E402
from ask_lockstep import Lockstep, LockstepBoth, traced  # noqa: E402
from ask_pytest_torch import PytestTorch  # noqa: E402
from ask_traincheck import Traincheck  # noqa: E402
from ask_trainparity import Trainparity  # noqa: E402
from faults import EXTRA, FAULTS, WORKLOADS  # noqa: E402
from rows import rows  # noqa: E402
from twin import Trainer  # noqa: E402

HERE = pathlib.Path(__file__).parent
SOME = """set_epoch_forgotten sample_duplicated local_negatives mean_of_means temperature_detached flip_bit
accumulation_not_scaled gradient_sum stale_gradient clip_missing weight_decay_missing rank_behind""".split()


class Runs:
    """One traced 8x3 run of each fault, used by every tool that reads what a run left."""

    def __init__(self, scratch):
        self.folder, self.known, self.ids = pathlib.Path(scratch) / "runs", {}, {}

    def __call__(self, fault, answers=False):
        folder = self.folder / fault.name
        if fault.name not in self.known:
            self.known[fault.name] = traced(fault.settings.but(world=8), folder, fault)
        left, failed = self.known[fault.name]
        failed = failed or ("" if all(left) else "a rank died without a word")
        return (left if answers else folder), failed

    def clean_ids(self, settings):
        key = (settings.trainer, settings.seed, settings.steps, settings.world)
        if key not in self.ids:
            self.ids[key] = [[ids for _, ids, _ in Order(settings, rank).batches()] for rank in range(settings.world)]
        return self.ids[key]


class Order(Trainer):
    """A trainer that trains nothing: the order of its rows."""

    def __init__(self, settings, rank):
        from twin import Fault

        self.s, self.rank, self.fault = settings, rank, Fault()


def named(answer, fault, of_lockstep):
    """lockstep names by a cause's code; of the others' words any that fit are taken."""
    if not answer.get("found"):
        return False
    if of_lockstep:
        return answer.get("code", "") in fault.causes
    return bool(fault.says) and re.search(fault.says, answer["words"]) is not None


def kept(answer, fault=None, of_lockstep=False):
    out = {k: v for k, v in answer.items() if v not in ("", None)}
    if fault is not None and answer.get("found"):
        out["named"] = named(answer, fault, of_lockstep)
    if "words" in out:
        out["words"] = shortened(out["words"])
    return out


def version_of(package, program):
    if package != "lockstep":
        return importlib.metadata.version(package)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    return said[1]


UNFINISHED = "not asked to the end"


def in_time(answer):
    try:
        return answer()
    except subprocess.TimeoutExpired as late:
        return cannot(f"{UNFINISHED}: its program ran past {late.timeout:.0f} s")
    except ranks.Late as late:
        return cannot(f"{UNFINISHED}: {late}")


def ask(tool, faults, workloads, seeds, entry, keep):
    """Fills `entry` with the answers that it does not have yet, and calls keep() after each."""
    of_lockstep, seeds = tool.package == "lockstep", () if tool.name == "traincheck" else (seeds,)
    began, before = time.monotonic(), entry["minutes"]
    for name, answer in tool.clean(workloads, *seeds):
        if name in entry["clean"]:
            continue
        said = kept(in_time(answer))
        if said.get("cannot", "").startswith(UNFINISHED):
            continue  # asked again the next time
        entry["clean"][name] = said
        if said.get("found"):
            print(f"    false alarm of {tool.name}: {name}: {said.get('words', '')}", file=sys.stderr, flush=True)
        keep()
    for fault in faults:
        if fault.name in entry["faults"] and not entry["faults"][fault.name].get("cannot", "").startswith(UNFINISHED):
            continue
        entry["faults"][fault.name] = kept(in_time(lambda fault=fault: tool.fault(fault)), fault, of_lockstep)
        entry["notes"] = tool.notes() or entry["notes"]
        entry["minutes"] = round(before + (time.monotonic() - began) / 60, 1)
        keep()


def entry_of(tool, program):
    return {
        "title": tool.title, "version": version_of(tool.package, program), "layout": tool.layout, "asked": tool.asked,
        "cannot_be_asked": tool.cannot_be_asked, "notes": {}, "clean": {}, "faults": {}, "minutes": 0.0,
    }  # fmt: skip


class Results:
    """The kept file; calls that ask different tools at a time add to one file."""

    def __init__(self, path, facts, program):
        self.path, self.facts, self.program = path, facts, program

    def tools(self):
        return json.loads(self.path.read_text())["tools"] if self.path.exists() else {}

    def begin(self, tool, faults, resume):
        """The tool's entry: as it was kept (to go on), without the named faults' answers, or empty."""
        before, entry = self.tools().get(tool.name), entry_of(tool, self.program)
        if before and (resume or faults):
            entry.update(notes=before["notes"], clean=before["clean"], minutes=before["minutes"])
            entry["faults"] = {n: a for n, a in before["faults"].items() if n not in faults}
        return entry

    def put(self, name, entry):
        whole = {**self.facts, "tools": {**self.tools(), name: entry}}
        new = self.path.with_suffix(".new")
        new.write_text(rows(whole) + "\n")
        new.replace(self.path)


def missing_packages(path):
    if path is None or not path.exists():
        return {}
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return {pinned.split("==")[0]: (pinned.split("==")[1], error) for pinned, error in lines}


def not_installed(tool, faults, version, error):
    why = f"not installed: {shortened(error)}"
    return {
        "title": tool.title, "version": version, "layout": tool.layout, "cannot_be_asked": "", "notes": {}, "clean": {},
        "asked": "nothing, since it could not be installed: " + shortened(error),
        "faults": {f.name: {"cannot": why} for f in faults}, "minutes": 0,
    }  # fmt: skip


def facts_of(fault):
    return {"help": fault.help, "twin": fault.workload, "first": fault.first, "listed": fault.name not in EXTRA}


def check_names(program):
    """The faults are the project's own: `lockstep list mutants` has all but those that say otherwise. Their number."""
    done = subprocess.run([program, "list", "mutants", "--json"], capture_output=True, text=True, check=True)
    listed = {m["name"] for m in json.loads(done.stdout)["mutants"]}
    wrong = sorted((set(FAULTS) - EXTRA - listed) | (EXTRA & listed))
    if wrong:
        sys.exit(f"peers: these faults are not those of `lockstep list mutants`: {', '.join(wrong)}; mend studies/peers/faults.py")
    return len(listed)


def tools_of(scratch, program, faults, everything):
    runs, curves = Runs(scratch), {}
    return [
        Lockstep(scratch, program, runs, across=True),
        Lockstep(scratch, program, runs, across=False),
        LockstepBoth(scratch, program, runs),
        Curves(True, curves),
        Curves(False, curves),
        DebugModeHashes(faults),
        Trainparity(scratch, runs, runs.clean_ids),
        PytestTorch(scratch, faults),
        Traincheck(scratch, everything),
    ]


def named_in(text, known, what):
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"peers: no {what} is called {', '.join(unknown)}; there are: {', '.join(known)}")
    return names


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--scratch", required=True, type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results.json")
    parser.add_argument("--missing", type=pathlib.Path, help="packages that could not be installed, a line each: name==version, error")
    parser.add_argument("--quick", action="store_true", help="some faults, one seed, no traincheck")
    parser.add_argument("--all", action="store_true", help="traincheck is asked about every fault")
    parser.add_argument("--resume", action="store_true", help="asks what has no kept answer")
    parser.add_argument("--only", default="", help="tools to ask; the others' kept answers stay")
    parser.add_argument("--faults", default="", help="faults to ask about again; kept answers about others, and about clean runs, stay")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(1)
    ranks.warm_up()
    shutil.rmtree(options.scratch, ignore_errors=True)
    options.scratch.mkdir(parents=True)
    facts = {
        "mutants_listed": check_names(options.lockstep), "torch": torch.__version__, "python": platform.python_version(),
        "cores": os.cpu_count(), "faults": {f.name: facts_of(f) for f in FAULTS.values() if not options.quick or f.name in SOME},
    }  # fmt: skip
    faults = [FAULTS[name] for name in facts["faults"]]
    tools = tools_of(options.scratch, options.lockstep, faults, options.all)
    only = named_in(options.only, [tool.name for tool in tools], "tool")
    again = named_in(options.faults, facts["faults"], "fault")
    if not (only or again or options.resume):
        options.results.unlink(missing_ok=True)
    missing, results = missing_packages(options.missing), Results(options.results, facts, options.lockstep)
    for tool in tools:
        if (only and tool.name not in only) or (options.quick and tool.name == "traincheck"):
            continue
        print(f"==> {tool.title}", file=sys.stderr, flush=True)
        if tool.package in missing:
            entry = not_installed(tool, faults, *missing[tool.package])
        else:
            entry = results.begin(tool, again, options.resume)
            seeds = (5,) if options.quick else (5, 6, 7)
            ask(tool, faults, {} if again else WORKLOADS, seeds, entry, lambda: results.put(tool.name, entry))
        results.put(tool.name, entry)
        seen = sum(bool(a.get("found")) for a in entry["faults"].values())
        alarms = sum(bool(a.get("found")) for a in entry["clean"].values())
        print(f"    {seen} of {len(entry['faults'])} found, {alarms} of {len(entry['clean'])} clean runs called faulty, "
              f"{entry['minutes']} min", file=sys.stderr, flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
