"""Public reports as small PyTorch programs: does `lockstep compare` say what their root cause was?

    real_reports.py --lockstep PROGRAM [--only TEXT] [--keep FOLDER]

Each case is three runs: what the program should equal, the program with the report's mistake, and the right program on as
many ranks. Fails on a wrong name, on an alarm about a right run, on a wrong first step, and if too few cases are named.
"""

import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  DDP and optimizers import it: once here, not in each rank
import torch.distributed.fsdp  # noqa: E402, F401
import torch.distributed.tensor.parallel  # noqa: E402, F401

import launch  # noqa: E402

FAMILIES = ("denominators", "auxiliary", "micro_steps", "replicas", "norms", "updates", "random_and_data", "backends")
QUIET = {"identical", "within_envelope", "inconclusive"}
LEAST_NAMED = 30


def compared(program, a, b):
    done = subprocess.run([program, "compare", a, b, "--json"], capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        said = (done.stderr + done.stdout).strip()
        return {"verdict": "failed", "sentence": said, "first_divergence": None, "cause": None}


class Judge:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.cases = self.named = self.placed = 0
        self.problems, self.notes = [], []

    def judge(self, case):
        began = time.monotonic()
        here = self.folder / case.name()
        reference, wrong, right = str(here / "reference"), str(here / "wrong"), str(here / "right")
        launch.run(case.reference or case.program, case.reference_ranks, reference)
        launch.run(case.program, case.ranks, wrong, wrong=True)
        launch.run(case.program, case.ranks, right)
        found, silent = compared(self.program, reference, wrong), compared(self.program, reference, right)
        (here / "wrong.json").write_text(json.dumps(found, indent=1))
        (here / "right.json").write_text(json.dumps(silent, indent=1))
        self.cases += 1
        if silent["verdict"] not in QUIET:
            self.problems.append(f"alarm about the right run of {case.report}: {silent['verdict']}: {silent['sentence']}")
        code = found["cause"]["code"] if found["cause"] else ""
        where = found["first_divergence"]
        step = where["step"] if where else None
        if found["verdict"] != "divergent":
            said = "unseen"
            self.problems.append(f"{case.report} is not seen: {found['verdict']}: {found['sentence']}")
        elif step != case.step:
            said = "wrong step"
            self.problems.append(f"{case.report} begins at step {case.step}, not {step}: {found['sentence']}")
        elif code in case.codes:
            said = "right"
            self.named += 1
        elif code in ("", "unexplained"):
            said = "unnamed"
        else:
            said = "wrong"
            self.problems.append(f"wrong name of {case.report}: {code}, not {' or '.join(case.codes)}: {found['sentence']}")
        right_place = where is not None and where["phase"] in case.phase and case.rank in (None, where.get("rank"))
        self.placed += right_place
        if where is not None and not right_place:
            expected = f"{' or '.join(case.phase)}{f', rank {case.rank}' if case.rank is not None else ''}"
            self.notes.append(f"{case.report}: first shows in {expected}; said: {where['phase']}, {where['where']}")
        print(f"{case.report:42} {code or '-':32} step {'-' if step is None else step:>2}  {said:10} right run "
              f"{silent['verdict']:16} {time.monotonic() - began:4.1f} s  {case.title}", flush=True)  # fmt: skip
        if said == "unnamed":
            self.notes.append(f"{case.report} is not named ({' or '.join(case.codes)}): {found['sentence']}")

    def verdict(self, whole):
        if whole and self.named < LEAST_NAMED:
            self.problems.append(f"only {self.named} of {self.cases} reports are named rightly")
        if not self.cases:
            self.problems.append("no report has this text")
        for note in self.notes:
            print("note:", note)
        for problem in self.problems:
            print("problem:", problem)
        print(f"{self.cases} reports: {self.named} named rightly, {self.placed} at their place; {len(self.problems)} problems")
        return 1 if self.problems else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for family in FAMILIES for case in importlib.import_module(family).CASES]
    with tempfile.TemporaryDirectory() as scratch:
        judge = Judge(options.lockstep, (options.keep or pathlib.Path(scratch)).resolve())
        for case in cases:
            if options.only in case.name() + " " + case.report + " " + case.title:
                judge.judge(case)
        return judge.verdict(not options.only)


if __name__ == "__main__":
    sys.exit(main())
