"""Asks `lockstep compare` about runs of trainers that are not lockstep's, and holds its answers against the truth.

    conformance.py --lockstep PROGRAM [--only TEXT] [--keep FOLDER]

Fails on any alarm about a clean run, on any wrong name, and where too few faults are placed or named.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

from cases import QUIET, all_cases  # noqa: E402
from foreign import Run  # noqa: E402

LEAST_PLACED, LEAST_NAMED = 0.95, 0.60
# Names of what is seen rather than of why: no answer, and no wrong one.
GENERAL = {"", "unexplained", "constant-factor", "update-differs"}


def trained(settings, folder):
    if not folder.exists():
        settings.go_to(str(folder)) if hasattr(settings, "go_to") else Run(settings, str(folder)).go()
    return str(folder)


def compared(program, case, folder):
    key = hashlib.sha256((case.a.name_of_model() + case.a.in_words()).encode()).hexdigest()[:12]
    a = trained(case.a, folder / f"reference-{key}")
    b = trained(case.b, folder / case.name.replace(" ", "-").replace(",", "").replace(":", ""))
    command = [program, "compare", a, b, "--json"]
    if case.repeats:
        for k in range(1, 5):
            command += ["--repeat", trained(case.a.but(order=k), folder / f"reference-{key}-order-{k}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"verdict": "failed", "sentence": done.stderr.strip(), "first_divergence": None, "cause": None}


class Score:
    def __init__(self):
        self.problems = []
        self.clean = self.faults = self.placed = self.nameable = self.named = self.undeclared = 0

    def judge(self, case, answer):
        where, cause = answer["first_divergence"], answer["cause"]
        code = cause["code"] if cause else ""
        said = f"{answer['verdict']}, step {where['step'] if where else '-'}, {code or '-'}: {answer['sentence']}"
        if case.step is None:
            self.clean += 1
            wanted = {case.verdict} if case.verdict else QUIET
            if answer["verdict"] not in wanted or case.says not in answer["sentence"]:
                self.problems.append(f"alarm about {case.name}: {said}")
            elif answer["verdict"] == "divergent" and code not in ("", "unexplained"):
                self.problems.append(f"wrong name of {case.name}: {said}")
            return said
        if code not in case.causes and code not in GENERAL:
            self.problems.append(f"wrong name of {case.name}: {said}")
        if case.silent:
            self.undeclared += 1
            return said
        self.faults += 1
        right_place = where is not None and where["step"] == case.step and case.where in (where["phase"] + where["where"])
        self.placed += right_place
        self.nameable += bool(case.causes)
        self.named += code in case.causes
        if not right_place:
            print(f"  not at its place: {case.name}: {said}")
        elif case.causes and code not in case.causes:
            print(f"  not named: {case.name}: {said}")
        return said

    def verdict(self):
        placed, named = self.placed / max(self.faults, 1), self.named / max(self.nameable, 1)
        if placed < LEAST_PLACED:
            self.problems.append(f"only {self.placed} of {self.faults} faults are at their step")
        if named < LEAST_NAMED:
            self.problems.append(f"only {self.named} of {self.nameable} faults are named rightly")
        print(f"{self.clean} clean runs, {self.faults} faults: {self.placed} at their step and place, "
              f"{self.named} of {self.nameable} that have a name named rightly; {self.undeclared} of these faults without "
              f"declarations; {len(self.problems)} problems")  # fmt: skip
        for problem in self.problems:
            print("problem:", problem)
        return 1 if self.problems else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    score = Score()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or pathlib.Path(scratch)
        for case in all_cases():
            if options.only not in case.name:
                continue
            said = score.judge(case, compared(options.lockstep, case, folder))
            if options.verbose:
                print(f"{case.name}: {said}")
    return 0 if options.only and not score.problems else score.verdict()


if __name__ == "__main__":
    sys.exit(main())
