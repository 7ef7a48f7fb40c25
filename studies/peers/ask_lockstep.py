"""lockstep itself: `lockstep compare` of traces that the Python trainer writes, between layouts and on one layout."""

import functools
import json
import pathlib
import shutil
import subprocess

import ranks
from alone import acts_alone
from answer import cannot, found, silent
from traced import Tracer
from twin import Trainer

REPEATS = 4
QUIET = {"identical", "within_envelope", "inconclusive", "equivalent"}


def traced(settings, folder, fault=None):
    """A run with its traces in `folder`: losses and sample ids of each rank, and the failed ranks' last words."""
    shutil.rmtree(folder, ignore_errors=True)

    def work(rank):
        tracer = Tracer(folder, rank, settings)
        trainer = Trainer(settings, rank, fault, tracer)
        return {"losses": trainer.train(), "ids": tracer.all_ids}

    answers, logs = ranks.run(settings.world, work)
    words = next((log.strip().splitlines()[-1] for a, log in zip(answers, logs) if a is None and log.strip()), "")
    return answers, words


class Lockstep:
    """`layouts`: compares 8x3 with 1x24 (and repeats of it); else with a clean 8x3."""

    package, cannot_be_asked = "lockstep", ""

    def __init__(self, scratch, program, runs, across):
        self.folder, self.program, self.runs, self.across = pathlib.Path(scratch) / "lockstep", program, runs, across
        self.name = "lockstep_layouts" if across else "lockstep_equal"
        self.title = "lockstep, 1x24 with 8x3" if across else "lockstep, 8x3 with 8x3"
        self.layout = "8x3"
        self.asked = (
            f"`lockstep compare 1x24 8x3 --repeat …` with {REPEATS} repeats of the reference in other row orders"
            if across
            else "`lockstep compare 8x3 8x3` with the clean run of the same layout"
        ) + ". The Python trainer writes traces by docs/trace.md and declares its configuration. Found: `divergent`"  # fmt: skip

    def notes(self):
        return {}

    def compare(self, a, b, repeats=()):
        command = [self.program, "compare", str(a), str(b), "--json"]
        for r in repeats:
            command += ["--repeat", str(r)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            return cannot(f"refused: {done.stderr}")
        if answer["verdict"] in QUIET:
            return silent(f"{answer['verdict']}: {answer['sentence']}")
        where, cause = answer["first_divergence"] or {}, answer["cause"] or {}
        return found(where.get("step"), answer["sentence"], cause.get("code", ""))

    def _reference(self, workload, settings):
        base = self.folder / f"{workload}-{settings.seed}"
        one = settings.but(world=1)
        orders = range(REPEATS + 1) if self.across else ()
        folders = [self._once(one.but(order=k), f"{base}-1x24-{k}") for k in orders]
        if not self.across:
            folders = [self._once(settings.but(world=8), f"{base}-8x3")]
        return folders[0], folders[1:]

    def _once(self, settings, folder):
        if not pathlib.Path(folder).exists():
            traced(settings, folder)
        return folder

    def clean(self, workloads, seeds=(5, 6, 7)):
        for workload, settings in workloads.items():
            for seed in seeds:
                for world in (8, 4, 2) if self.across and seed == seeds[0] else (8,):
                    name = f"{workload} {world}x{24 // world}, seed {seed}"
                    yield name, functools.partial(self._clean, workload, settings.but(seed=seed, world=world))

    def _clean(self, workload, settings):
        first, repeats = self._reference(workload, settings)
        folder = self.folder / f"{workload}-{settings.seed}-clean-{settings.world}"
        traced(settings, folder)
        return self.compare(first, folder, repeats)

    def fault(self, fault):
        folder, failed = self.runs(fault)
        if failed:
            return found(None, f"the run itself fails: {failed}")
        first, repeats = self._reference(fault.workload, fault.settings)
        return self.compare(first, folder, repeats)


class LockstepBoth(Lockstep):
    """The fault stands in the reference too: nothing right to compare with."""

    def __init__(self, scratch, program, runs):
        super().__init__(scratch, program, runs, across=True)
        self.name, self.title = "lockstep_both", "lockstep, the fault in both runs"
        self.asked = (
            "`lockstep compare 1x24 8x3 --repeat …` where the 1x24 run and its repeats have the fault too: only what a run shows "
            "by itself can then be found. Found: `divergent`"
        )
        self.cannot_be_asked = (
            "faults of the exchange and of one rank, as one process cannot have them; the first column covers them"
        )

    def clean(self, workloads, seeds=()):
        return iter(())

    def fault(self, fault):
        if not acts_alone(fault, fault.settings):
            return cannot("in one process the fault does nothing")
        if fault.of_one_rank:
            return cannot("one rank of several has the fault: one process has no such rank")
        folder, failed = self.runs(fault)
        if failed:
            return found(None, f"the run itself fails: {failed}")
        one = [self.folder / f"both-{fault.name}-{k}" for k in range(REPEATS + 1)]
        for k, place in enumerate(one):
            traced(fault.settings.but(world=1, order=k), place, fault)
        return self.compare(one[0], folder, one[1:])
