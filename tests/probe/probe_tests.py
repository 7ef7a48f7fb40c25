"""Tests of lockstep_probe by small PyTorch trainers: equal bits with and without it, right numbers, right verdicts, clear messages.

    probe_tests.py --lockstep PROGRAM [--only TEXT] [--keep FOLDER] [--jobs N]

Prints a line for each case. Exit code 1 if one fails.
"""

import argparse
import gc
import importlib
import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "probe" / "python")]
sys.path.insert(0, str(HERE))
warnings.filterwarnings("ignore", message=".*NumPy.*")
os.environ.setdefault("OMP_NUM_THREADS", "1")
for variable in [name for name in os.environ if name.startswith("LOCKSTEP_") and name != "LOCKSTEP_HASH"]:
    del os.environ[variable]

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  DDP and optimizers import it: once here, not in each rank
import torch.distributed.fsdp  # noqa: E402, F401
import torch.distributed.pipelining  # noqa: E402, F401
import torch._inductor.compile_fx  # noqa: E402, F401
import torch.distributed.tensor.parallel  # noqa: E402, F401

import lockstep_probe.probe  # noqa: E402, F401

from case import Bench, Problem  # noqa: E402

FAMILIES = ("examples", "bits", "values", "led", "check", "starter", "in_pytest", "layouts", "mistakes", "sharded_mistakes", "no_lines", "bad_input", "facts", "programs", "things", "resumed")


def run_one(case, options, folder, report):
    began = time.monotonic()
    try:
        said, failed = case.check(Bench(options.lockstep, folder)) or "", False
    except Problem as problem:
        said, failed = f"PROBLEM: {problem}", True
    except Exception:  # noqa: BLE001
        said, failed = f"PROBLEM: {traceback.format_exc()}", True
    line = f"{case.name:58} {'failed' if failed else 'passed'} {time.monotonic() - began:5.1f} s  {said}\n"
    os.write(report, line.encode())
    return failed


def worker(cases, options, folder, turn, report):
    """Takes every so manyth case; its exit code is 1 if one failed."""
    failed = 0
    for number, case in enumerate(cases):
        if number % options.jobs == turn:
            here = folder / "".join(c if c.isalnum() else "-" for c in case.name)
            here.mkdir(parents=True, exist_ok=True)
            failed += run_one(case, options, here, report)
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    options.lockstep = str(pathlib.Path(options.lockstep).resolve())
    os.environ.setdefault("LOCKSTEP_HASH", str(pathlib.Path(options.lockstep).parent / "liblockstep_hash.so"))
    os.environ["LOCKSTEP_TEST_PROGRAM"] = options.lockstep
    torch.set_num_threads(1)
    began = time.monotonic()
    cases = [case for family in FAMILIES for case in importlib.import_module(family).CASES if options.only in f"{family} {case.name}"]
    if not cases:
        print("problem: no case has this text")
        return 1
    gc.collect()
    gc.freeze()  # ranks are forked: none of them looks through what was imported here
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or pathlib.Path(scratch)).resolve()
        children = []
        for turn in range(min(options.jobs, len(cases))):
            child = os.fork()
            if child == 0:
                worker(cases, options, folder, turn, 1)
            children.append(child)
        failed = [child for child in children if os.waitpid(child, 0)[1]]
    print(f"{len(cases)} cases in {time.monotonic() - began:.0f} s: {'some failed' if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
