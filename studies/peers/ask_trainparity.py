"""TrainParity: sample coverage of the ranks, and accumulation against one batch in fresh processes."""

import functools
import os
import pathlib
import sys

from alone import OF_THE_MODEL, acts_alone, overrides, settings_for_accumulation
from answer import cannot, found, silent

PARTS = 3


class Trainparity:
    name, title, package, layout = "trainparity", "trainparity", "trainparity", "8x3"
    asked = (
        "`audit_sample_coverage` of the ids that the 8 ranks trained on, epoch by epoch, `ExactlyOnce`; and "
        f"`check_accumulation` of the token-mean trainer, {PARTS} micro-batches against one batch, tolerance 1e-5, for faults of "
        "the model, its loss or its optimizer (its own loop trains; the plan says if the user's loop does not divide). "
        "Found: `FAIL`"
    )
    cannot_be_asked = (
        "gradients, collectives and replicas between ranks (it says so itself: no DDP); a split batch whose rows share "
        "candidates; faults of a loop, which it replaces by its own"
    )

    def __init__(self, scratch, runs, clean_ids):
        self.folder, self.runs, self.clean_ids = pathlib.Path(scratch), runs, clean_ids

    def notes(self):
        return {}

    def _coverage(self, ids, settings):
        """ids[rank][step]: the first violation of any epoch."""
        from trainparity.api import ExactlyOnce, SampleObservation, audit_sample_coverage

        per_epoch = settings.samples // settings.batch
        for epoch in range(settings.steps // per_epoch):
            rows, steps = [], range(epoch * per_epoch, (epoch + 1) * per_epoch)
            for rank, mine in enumerate(ids):
                flat = [i for step in steps for i in mine[step]]
                rows += [SampleObservation(i, rank, epoch, k) for k, i in enumerate(flat)]
            result = audit_sample_coverage(sorted(rows, key=lambda o: (o.position, o.rank)), ExactlyOnce(range(settings.samples)))
            if result.outcome.value != "PASS":
                v = result.first_violation
                step = steps[0] + v.position // (settings.batch // settings.world) if v and v.position is not None else steps[0]
                return found(step, f"{result.outcome.value}: {v.path if v else ''}, {result.message}")
        return None

    def _accumulation(self, fault, settings):
        from trainparity.api import AccumulationExecutionPlan, ToleranceComparison, check_accumulation

        here = str(pathlib.Path(__file__).parent)
        environment = dict(os.environ, PYTHONPATH=here, PEERS_FAULT=fault.name if fault else "none",
                           PEERS_NORM=str(int(settings.norm)), PEERS_SEED=str(settings.seed))  # fmt: skip
        os.environ.update({k: environment[k] for k in ("PEERS_FAULT", "PEERS_NORM", "PEERS_SEED")})
        if here not in sys.path:
            sys.path.insert(0, here)
        scaled = not (fault and fault.name == "accumulation_not_scaled")
        plan = AccumulationExecutionPlan(PARTS, scale_accumulated_loss=scaled, use_explicit_loss_accounting=scaled)
        result = check_accumulation("trainparity_case:Case", candidate=plan, comparison=ToleranceComparison(rtol=1e-5, atol=1e-7),
                                    seed=settings.seed, environment=environment, timeout=120, cwd=self.folder)  # fmt: skip
        words = f"{result.outcome.value}: {result.message}"
        return silent(words) if result.outcome.value == "PASS" else found(0, words)

    def clean(self, workloads, seeds=(5, 6, 7)):
        for workload, settings in workloads.items():
            for seed in seeds:
                yield f"coverage of {workload} 8x3, seed {seed}", functools.partial(self._clean, settings.but(seed=seed, world=8))
        for seed in seeds if "accumulated" in workloads else ():
            yield f"accumulation, seed {seed}", functools.partial(self._accumulation, None, workloads["accumulated"].but(seed=seed))

    def _clean(self, settings):
        return self._coverage(self.clean_ids(settings), settings) or silent()

    def fault(self, fault):
        settings = fault.settings.but(world=8)
        answers, failed = self.runs(fault, answers=True)
        if failed:
            return cannot("the run itself fails")
        ids = [a["ids"] for a in answers]
        seen = self._coverage(ids, settings)
        if seen:
            return seen
        one = settings_for_accumulation(fault)
        if one is not None and overrides(fault) <= OF_THE_MODEL and acts_alone(fault, one):
            return self._accumulation(fault, one)
        if ids != self.clean_ids(settings):
            return silent("coverage: PASS")
        return cannot("no sample id differs, and the fault is not one of a model, loss or optimizer in one process")
