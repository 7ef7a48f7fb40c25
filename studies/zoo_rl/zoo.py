"""Gives the same rewards to the advantage and statistics functions of other libraries in one process and on 8 Gloo ranks, and keeps what came of it.

    zoo.py [--only LIBRARY,…] [--results FILE]
"""

import argparse
import importlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import random
import re
import sys
import traceback
import warnings

HERE = pathlib.Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]
warnings.filterwarnings("ignore")

import torch  # noqa: E402

import conventions  # noqa: E402
import layouts  # noqa: E402
import ranks  # noqa: E402
from answer import shortened  # noqa: E402
from rows import rows  # noqa: E402

LIBRARIES = {
    "trl": "of_trl", "verl": "of_verl", "rsl-rl-lib": "of_rsl_rl", "rl-games": "of_rl_games", "skrl": "of_skrl",
    "openrlhf": "openrlhf.trainer.ppo_utils.experience_maker",  # needs flash-attn, which is built for CUDA: where it imports, nothing is asked yet
}  # fmt: skip
WORLD, ROWS, SIZE, CONSTANT_SIZE = 8, 48, 4, 6
HISTORY = 3
DEADLINE_S = 20
READING_DEADLINE_S = 120
PARTITIONS = ("plain", "uneven", "empty")
INPUTS = (*PARTITIONS, "constant", "offset")


def rewards_of(name, seed):
    """48 float32 rewards: a mean for each group of four, and a deviation for each row."""
    draw = random.Random(seed)
    if name == "constant":
        return [conventions.single(0.1)] * ROWS
    means = [draw.gauss(0, 1) for _ in range(ROWS // SIZE)]
    rewards = [means[row // SIZE] + draw.gauss(0, 1) for row in range(ROWS)]
    if name == "offset":
        rewards = [1e4 + r for r in rewards]
    return [conventions.single(r) for r in rewards]


def size_of(name):
    return CONSTANT_SIZE if name == "constant" else SIZE


def batches_of(subject, name):
    """(rewards, groups) of each batch of its history."""
    size = size_of(name)
    groups = [row // size if subject.grouped else 0 for row in range(ROWS)]
    return [(rewards_of(name, 11 + b), groups) for b in range(subject.history)]


def counts_of(name, world):
    return {"uneven": layouts.uneven, "empty": layouts.one_empty}.get(name, layouts.even)(ROWS, world)


def partitioned(batches, counts, rank):
    return [tuple(layouts.cut(rows, counts)[rank] for rows in batch) for batch in batches]


def environment(rank, world):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="0")


def told(error):
    return {"error": shortened(f"{type(error).__name__}: {error}")}


def reading(subject):
    """Conventions and the values of one process, of every input; what throws is kept as its words."""

    def once(rewards, groups):
        size = sum(g == groups[0] for g in groups)
        return subject.run(0, 1, [(list(rewards), list(groups))], size)

    def attempt(batches, size):
        try:
            return subject.run(0, 1, batches, size)
        except Exception as error:  # noqa: BLE001 - what the library throws is kept
            return told(error)

    def work(rank):
        environment(0, 1)
        torch.set_num_threads(1)
        try:
            how, why = conventions.read(once, subject.grouped)
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            return told(error)
        kept = {"how": vars(how) if how else None, "why": why, "one_process": {}, "alone": {}}
        kept["group_of_one"] = conventions.group_of_one(once, how, subject.grouped)
        kept["missing"] = conventions.missing_reward(once, how, subject.grouped)
        for name in INPUTS:
            batches = batches_of(subject, name)
            kept["one_process"][name] = attempt(batches, size_of(name))
            if name in PARTITIONS:
                parts = [attempt(partitioned(batches, counts_of(name, WORLD), r), size_of(name)) for r in range(WORLD)]
                whole = all(isinstance(p, list) for p in parts)
                kept["alone"][name] = [v for p in parts for v in p] if whole else None
        return kept

    answers, logs = ranks.run(1, work, deadline_s=READING_DEADLINE_S)
    return answers[0] or {"error": shortened(logs[0].strip().splitlines()[-1] if logs[0].strip() else "ended without a word")}


def on_ranks(subject, batches, counts, size):
    """The values of all rows, or how it ended."""
    world = len(counts)

    def work(rank):
        environment(rank, world)
        return subject.run(rank, world, partitioned(batches, counts, rank), size)

    try:
        answers, logs = ranks.run(world, work, deadline_s=DEADLINE_S)
    except ranks.Late:
        return {"verdict": "hang", "words": f"no end within {DEADLINE_S} s"}
    if all(isinstance(answer, list) for answer in answers):
        return [v for answer in answers for v in answer]
    ended = {r: ending(log) for r, log in enumerate(logs) if answers[r] is None}
    first = min(ended, key=lambda r: (weight(ended[r]), r))
    # Which process Gloo ends depends on who comes first: no rank is named.
    words = ended[first] if ended[first].startswith("Gloo") else f"rank {first}: {ended[first] or 'ended without a word'}"
    return {"verdict": "error", "words": words}


def weight(words):
    """What a rank says of itself comes before what Gloo says, and that before what follows from another rank's end."""
    return 3 if not words else 2 if "closed by" in words or "reset by" in words else 1 if words.startswith("Gloo") else 0


def ending(log):
    """How a rank ended, in one line without places and ports, which differ from run to run; empty if it says nothing."""
    refused = re.search(r"Received data size doesn't match expected size", log)
    if refused:
        return f"Gloo ends a process: {refused[0]}"
    lines = [line for line in log.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return re.sub(r"\[[^\]]*\]:?\d*\s*", "", shortened(lines[-1])).split(" This is typically")[0].rstrip(" .") if lines else ""


def judged(subject, read, how, name, world):
    batches, counts = batches_of(subject, name), counts_of(name, world)
    seen = on_ranks(subject, batches, counts, size_of(name))
    if isinstance(seen, dict):
        return seen
    reference = read["one_process"][name]
    if isinstance(reference, dict):
        return {"verdict": "differs", "words": "one process throws: " + reference["error"]}
    verdict = layouts.judge(how, batches, reference, seen)
    if verdict["verdict"] == "differs":
        verdict["named"] = layouts.explain(how, batches, counts, seen, read["alone"][name])
    return verdict


def error_of(how, batches, seen):
    """The largest difference from the convention in float64, or None."""
    if how is None or isinstance(seen, dict):
        return None
    expected = conventions.predict(how, *batches[-1], [rows for rows, _ in batches[:-1]])
    differences = [abs(a - b) for a, b in zip(seen, expected)]
    return max(differences) if all(map(math.isfinite, differences)) else "NaN"


def entry_of(subject):
    try:
        read = reading(subject)
    except ranks.Late:
        read = {"error": f"no end within {READING_DEADLINE_S} s"}
    if "error" in read:
        return {"error": read["error"]}
    how = conventions.Convention(**read["how"]) if read["how"] else None
    entry = {"words": how.words() if how else f"unknown: {read['why']}"}
    entry |= {"group_of_one": shortened(read["group_of_one"]), "missing": shortened(read["missing"])}
    constant = read["one_process"]["constant"]
    entry["constant"] = constant if isinstance(constant, dict) else shown(max(map(abs, constant)) if all(map(math.isfinite, constant)) else math.nan)
    entry["offset_error"] = error_of(how, batches_of(subject, "offset"), read["one_process"]["offset"])
    return entry | {name: judged(subject, read, how, name, WORLD) for name in PARTITIONS}


def shown(value):
    return "NaN" if math.isnan(value) else value


def ask(library):
    """Its entry, and those of its functions."""
    version = importlib.metadata.version(library) if installed(library) else None
    facts = {"version": version or "not installed"}
    if version is None:
        return {**facts, "error": "could not be installed"}, {}
    try:
        module = importlib.import_module(LIBRARIES[library])
    except Exception as error:  # noqa: BLE001 - a library that does not import is a row of the table
        return {**facts, **told(error)}, {}
    entries = {}
    for subject in getattr(module, "SUBJECTS", []):
        print(f"    {subject.key}", file=sys.stderr, flush=True)
        entries[subject.key] = entry_of(subject)
    return facts, entries


def installed(library):
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="libraries to ask; the others' kept answers stay")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results.json")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    unknown = sorted(set(only) - set(LIBRARIES))
    if unknown:
        sys.exit(f"zoo_rl: no library is called {', '.join(unknown)}; there are: {', '.join(LIBRARIES)}")
    torch.set_num_threads(1)
    before = json.loads(options.results.read_text()) if only and options.results.exists() else {"libraries": {}, "subjects": {}}
    whole = {"torch": torch.__version__, "python": platform.python_version(), "rows": ROWS, "libraries": {}, "subjects": {}}
    for library in LIBRARIES:
        if only and library not in only:
            whole["libraries"] |= {k: v for k, v in before["libraries"].items() if k == library}
            whole["subjects"] |= {k: v for k, v in before["subjects"].items() if k.startswith(library + ": ")}
            continue
        print(f"==> {library}", file=sys.stderr, flush=True)
        facts, entries = ask(library)
        whole["libraries"][library] = facts
        whole["subjects"] |= entries
        keep(whole, options.results)
    return 0


def keep(whole, path):
    new = path.with_suffix(".new")
    new.write_text(rows(whole) + "\n")
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main())
