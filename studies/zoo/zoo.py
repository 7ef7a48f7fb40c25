"""Trainers and losses of other libraries, in one process and on three Gloo ranks, traced by the probe and judged by `lockstep compare`.

    zoo.py --lockstep PROGRAM [--only TEXT,…] [--results FILE] [--keep FOLDER]
"""

import argparse
import importlib
import importlib.metadata
import json
import logging
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
sys.path += [str(HERE.parent), str(HERE.parent / "peers"), str(ROOT / "probe" / "python")]
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402

import factors  # noqa: E402
import ranks  # noqa: E402
from lockstep_probe import patches, zero  # noqa: E402
from rows import rows  # noqa: E402
from subject import NONE, TEN, ZERO, Run  # noqa: E402

LIBRARIES = {
    "transformers": "of_transformers", "accelerate": "of_accelerate", "lightning": "of_lightning", "open_clip_torch": "of_open_clip",
    "sentence-transformers": "of_sentence_transformers", "trl": "of_trl", "verl": "of_verl", "torch": "of_batch_norm",
}  # fmt: skip
WORLD = 3
STEPS, RUN_STEPS, LATER_STEPS = 60, 12, 4  # of the one process; of three ranks; of both after the former
DEADLINE_S = 240
UNNAMED = (None, "unexplained", "rate-differs", "update-differs", "replicas-drift", "constant-factor")  # codes that say: no known cause


def launched(subject, world, folder, lines, steps, settings, start=None, keep=None, against=None):
    """One run; its traces lie in `folder`. The words of the first rank that failed, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    pathlib.Path(folder).mkdir(parents=True)
    environment = {"LOCKSTEP_TRACE": str(folder), "LOCKSTEP_AGAINST": str(against or "")}
    # TorchElastic's and the frameworks' words; there is one process group already, which they use.
    environment["ZOO_WORK"] = str(folder) + ".work"
    if world > 1:
        environment |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}

    def work(rank):
        if world > 1:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        if lines == NONE:
            del os.environ["LOCKSTEP_TRACE"]
        elif lines == ZERO:
            zero._install()  # what startup/sitecustomize.py does where a process begins with LOCKSTEP_TRACE
        subject.program(Run(rank, world, folder, lines, steps, start, keep), **settings)
        for probe in patches.probes():  # as at the end of a process; a forked rank ends by os._exit
            probe.finish()
        return 1

    try:
        answers, logs = ranks.run(world, work, environment, DEADLINE_S)
    except ranks.Late:
        return f"no end within {DEADLINE_S} s"
    finally:
        shutil.rmtree(environment["ZOO_WORK"], ignore_errors=True)
    for rank, log in enumerate(logs):
        pathlib.Path(folder, f"rank-{rank}.log").write_text(log)
    failed = [rank for rank, answer in enumerate(answers) if answer is None]
    if failed:
        said = [log.strip().splitlines()[-1] for rank, log in enumerate(logs) if rank in failed and log.strip()]
        return next((s for s in said if "Gloo" not in s and "gloo" not in s), said[0] if said else "ended without a word")
    silent = [rank for rank in range(world) if not pathlib.Path(folder, f"rank-{rank}.trace").exists()]
    return f"rank {silent[0]} has no trace" if silent and lines != NONE else None


def compared(program, a, b):
    done = subprocess.run([program, "compare", str(a), str(b), "--json"], capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {"verdict": "failed", "sentence": (done.stderr + done.stdout).replace(str(b), "the run").replace(str(a), "the one process").strip()}
    pathlib.Path(b, "verdict.json").write_text(json.dumps(found, indent=1))
    where, cause = found.get("first_divergence"), found.get("cause")
    said = {"verdict": found["verdict"], "code": cause["code"] if cause else None, "step": where["step"] if where else None,
            "phase": where["phase"] if where else None,
            "sentence": found["sentence"].replace(str(b), "the run").replace(str(a), "the one process").strip()}  # fmt: skip
    return said


def reading(subject, said):
    """Is the verdict right? named, unnamed, quiet; wrong, alarm, unseen."""
    if said["verdict"] == "failed":
        return "failed"
    if subject.expect == "quiet":
        return "alarm" if said["verdict"] == "divergent" else "quiet"
    if said["verdict"] != "divergent":
        return "unseen"
    if said["step"] != subject.step:
        return "wrong step"
    if said["code"] in subject.expect:
        return "named"
    return "unnamed" if said["code"] in UNNAMED else "wrong"


class Zoo:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self._references = {}

    def reference(self, subject, lines, start=None):
        """(folder, file of its last weights, problem) of the one process, made once for all subjects that share it."""
        key = (subject.program.__module__, subject.program.__name__, repr(sorted(subject.reference.items(), key=str)), lines, start)
        if key not in self._references:
            folder = self.folder / f"reference-{len(self._references)}"
            keep = str(folder) + ".weights"
            steps = LATER_STEPS if start else STEPS if lines == NONE else RUN_STEPS
            problem = launched(subject, 1, folder, lines, steps, subject.reference, start, keep)
            self._references[key] = (folder, keep, problem)
        return self._references[key]

    def entry(self, subject):
        entry = {"library": subject.library, "name": subject.name, "layout": subject.layout, "known": subject.known,
                 "expect": subject.expect if subject.expect == "quiet" else list(subject.expect), "first_step": subject.step}  # fmt: skip
        entry["lines"] = {}
        folder = self.folder / "".join(c if c.isalnum() else "-" for c in subject.key)
        for lines in subject.lines:
            began = time.monotonic()
            reference, _, problem = self.reference(subject, lines)
            run = folder / f"lines-{lines}"
            problem = problem or launched(subject, WORLD, run, lines, RUN_STEPS, subject.settings, against=reference if lines == TEN else None)
            if problem:
                entry["lines"][lines] = {"error": problem}
                print(f"    {subject.key}, {lines} lines: {problem}", file=sys.stderr, flush=True)
                continue
            said = compared(self.program, reference, run)
            said["reading"] = reading(subject, said)
            entry["lines"][lines] = said
            entry.setdefault("initial", factors.factors(reference, run, subject.groups, subject.step))
            print(f"    {said['reading']:9} {said['verdict']} {said.get('code')} step {said.get('step')} {said.get('phase')}; {subject.key}, {lines} lines "
                  f"({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)  # fmt: skip
        lines = subject.lines[-1]
        if "error" in entry["lines"][lines]:
            return entry
        _, weights, problem = self.reference(subject, NONE)
        if problem:
            entry["later_error"] = problem
            return entry
        later, _, problem = self.reference(subject, lines, weights)
        run = folder / "later"
        problem = problem or launched(subject, WORLD, run, lines, LATER_STEPS, subject.settings, weights, against=later if lines == TEN else None)
        if problem:
            entry["later_error"] = problem
            return entry
        entry["later"] = factors.factors(later, run, subject.groups, subject.step if subject.step < LATER_STEPS else 0)
        said = compared(self.program, later, run)
        entry["later_said"] = said | {"reading": reading(subject, said)}
        print(f"    {entry['later_said']['reading']:9} {said.get('code')} after {STEPS} steps", file=sys.stderr, flush=True)
        return entry


def version_of(library):
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def keep(whole, path):
    new = path.with_suffix(".new")
    new.write_text(rows(whole) + "\n")
    new.replace(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only", default="", help="libraries; the others' kept answers stay")
    parser.add_argument("--name", default="", help="only subjects whose name has this text; the others' kept answers stay")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results.json")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    unknown = sorted(set(only) - set(LIBRARIES))
    if unknown:
        sys.exit(f"zoo: no library is called {', '.join(unknown)}; there are: {', '.join(LIBRARIES)}")
    torch.set_num_threads(1)
    ranks.warm_up()
    before = json.loads(options.results.read_text()) if options.results.exists() else {"libraries": {}, "subjects": {}}
    whole = {"torch": torch.__version__, "python": platform.python_version(), "steps": STEPS, "run_steps": RUN_STEPS, "later_steps": LATER_STEPS, "world": WORLD, "libraries": {}, "subjects": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for library in LIBRARIES:
            if only and library not in only:
                whole["libraries"] |= {k: v for k, v in before["libraries"].items() if k == library}
                whole["subjects"] |= {k: v for k, v in before["subjects"].items() if v["library"] == library}
                continue
            print(f"==> {library}", file=sys.stderr, flush=True)
            whole["libraries"][library] = facts = {"version": version_of(library) or "not installed"}
            try:
                module = importlib.import_module(LIBRARIES[library])
            except Exception as error:  # noqa: BLE001 - a library that does not import is a row of the table
                traceback.print_exc()
                facts["error"] = f"{type(error).__name__}: {error}" if version_of(library) else "could not be installed"
                continue
            zoo = Zoo(options.lockstep, (options.keep or pathlib.Path(scratch)).resolve() / library)
            for subject in module.SUBJECTS:
                if options.name in subject.name:
                    whole["subjects"][subject.key] = zoo.entry(subject)
                elif subject.key in before["subjects"]:
                    whole["subjects"][subject.key] = before["subjects"][subject.key]
            keep(whole, options.results)
            if not options.keep:
                shutil.rmtree(pathlib.Path(scratch) / library, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
