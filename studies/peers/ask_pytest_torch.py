"""pytest-torch: its checks of a training loop, and golden files of a clean run, in one process."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

from alone import acts_alone, settings_for_accumulation
from answer import cannot, found, silent

CASES = "pytest_torch_cases.py"


class PytestTorch:
    name, title, package, layout = "pytest_torch", "pytest-torch", "pytest-torch", "one process"
    asked = (
        "`run_training(…).assert_healthy(min_relative_decrease=0.05)`, `assert_lr`, `assert_all_params_receive_grad`, "
        "`assert_accumulation_equivalent` (3 micro-batches, the token-mean trainer without clipping) and `golden` files of losses and parameters "
        "of the clean run, on the trainer's own step in one process; if one rank has the fault, that rank's process. "
        "Found: a test fails"
    )
    cannot_be_asked = "several ranks, as it runs one process, in which a fault of the exchange has no effect"

    def __init__(self, scratch, faults):
        self.folder, self.faults = pathlib.Path(scratch) / "pytest_torch", list(faults)
        self.answers, self.of_clean = {}, {}
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        shutil.copy(pathlib.Path(__file__).with_name(CASES), self.folder / "test_twin.py")

    def notes(self):
        return {}

    def _pytest(self, asked, *more):
        environment = dict(os.environ, PEERS_SOURCES=str(pathlib.Path(__file__).parent), PEERS_ASKED=json.dumps(asked))
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *more, "test_twin.py"]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=3600, check=False
        )
        if not report.exists():
            raise RuntimeError(f"pytest left no report: {done.stdout[-500:]}")
        messages = {}
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            test, which = re.fullmatch(r"test_(\w+)\[(.*)\]", case.get("name")).groups()
            for failed in case.findall("failure") + case.findall("error"):
                lines = [line[1:].strip() for line in (failed.text or "").splitlines() if line.startswith("E ")]
                messages.setdefault(which, {})[test] = "\n".join(lines) or failed.get("message") or ""
        return messages

    def _asked(self, asked):
        """One run of pytest for all; goldens are those of the clean runs of the same twins and seeds."""
        clean = sorted({("none", w, s) for _, w, s in asked})
        self._pytest(clean, "--torch-update-golden", "-k", "golden")
        messages = self._pytest(asked)
        return {f"{f}-{w}-{s}": _answer(messages.get(f"{f}-{w}-{s}", {})) for f, w, s in asked}

    def clean(self, workloads, seeds=(5, 6, 7)):
        asked = [("none", workload, seed) for workload in workloads for seed in seeds]
        for which in asked:
            yield "{1}, one process, seed {2}".format(*which), functools.partial(self._clean, asked, which)

    def _clean(self, asked, which):
        if not self.of_clean:
            self.of_clean = self._asked(asked)
        return self.of_clean["{0}-{1}-{2}".format(*which)]

    def fault(self, fault):
        if not self.answers:
            able = [f for f in self.faults if self._acts(f)]
            self.answers = self._asked([(f.name, f.workload, f.settings.seed) for f in able])
        key = f"{fault.name}-{fault.workload}-{fault.settings.seed}"
        return self.answers.get(key) or cannot("one process: with the fault it trains bit for bit as without")

    @staticmethod
    def _acts(fault):
        accumulated = settings_for_accumulation(fault)
        return acts_alone(fault, fault.settings) or (accumulated is not None and acts_alone(fault, accumulated))


def _answer(messages):
    if not messages:
        return silent()
    steps = [int(m) for text in messages.values() for m in re.findall(r"(?:loss of step|\bstep) (\d+)\b", text)[:1]]
    order = [t for t in ("accumulation", "gradients", "healthy", "rate", "golden") if t in messages]
    return found(min(steps, default=None), " | ".join(f"{t}: {messages[t]}" for t in order), "")
