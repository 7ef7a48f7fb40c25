"""What a user may do wrong: a clear message on stderr, and training goes on to the same bits."""

import os
import pathlib
import resource
import signal

import torch
from torch.utils.data import DataLoader

import lockstep_probe
import models
from bits import differences
from case import Case, environment, need
from layouts import Adam
from trainer import Trainer


def check(kind, world, *words, env=None, **options):
    """Trains with and without the probe: equal bits, and these words on stderr of some rank."""

    def on_bench(bench):
        def program(run):
            with environment(**(env or {})):
                state = kind(run, **options).train().state()
                torch.manual_seed(0)
                plain = kind(run, lines=0).train().state()
            differ = differences(state, plain)
            assert not differ, f"not the same bits: {differ}"

        said = "".join(bench.run(program, world, "run"))
        for word in words:
            need(word in said, f"{word!r} is not in what it said: {said}")
        need("Traceback" not in said, f"said: {said}")
        return ""

    return on_bench


class Twice(Adam):
    def before_step(self, step):
        if step == 2 and self.probe is not None:
            again = lockstep_probe.attach(self.called, self.optimizer, out=self.run.folder)
            need(again is self.probe, "another probe")


class Grown(Adam):
    """A layer is added to the model and the optimizer before step 2."""

    def before_step(self, step):
        if step == 2:
            torch.manual_seed(5)
            self.model.late = torch.nn.Linear(models.CLASSES, models.CLASSES)
            self.optimizer.add_param_group({"params": list(self.model.late.parameters())})

    def row_losses(self, called, x, y):
        late = getattr(self.model, "late", None)
        logits = called(x)
        return torch.nn.functional.cross_entropy(late(logits) if late is not None else logits, y, reduction="none")


class WrongLengths(Adam):
    def forward_backward(self, called, ids):
        if self.probe is not None:
            self.probe.rows(ids, models.X[ids[:-1]], models.Y[ids])
        probe, self.probe = self.probe, None
        try:
            return super().forward_backward(called, ids)
        finally:
            self.probe = probe


class NotRows(Adam):
    """Sample ids that are no numbers."""

    def before_step(self, step):
        if self.probe is not None and step == 1:
            self.probe.rows(["a", "b"])


class DiskFull(Adam):
    """No file may grow beyond 20 kB."""

    steps = 8

    def train(self):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if self.probe is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        try:
            return super().train()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class Broken(Adam):
    """The probe itself fails at step 2."""

    def before_step(self, step):
        if self.probe is not None and step == 2:
            self.probe.recorder = None


class BrokenAtOnce(Adam):
    """It fails in the first step."""

    def clip_gradients(self):
        if self.probe is not None:
            self.probe.gradients.record = None
        super().clip_gradients()


class BrokenBefore(Adam):
    """It fails before the first step."""

    def before_step(self, step):
        if self.probe is not None:
            self.probe.parameters.find = None


def broken_at_once(bench):
    """What it has begun to write is no damaged trace: compare says why there is nothing, or that there is no trace."""
    said = []
    for kind, words in ((BrokenAtOnce, "switched itself off"), (BrokenBefore, "no such trace")):
        a, _ = bench.train(Adam, 2, f"{kind.__name__} a")
        b, _ = bench.train(kind, 2, f"{kind.__name__} b")
        found = bench.compare(a, b)
        need(words in found["sentence"], f"{kind.__name__}: {found['verdict']}: {found['sentence']}")
        said.append(f"{found['verdict']}: {found['sentence'][:120]}")
    return "; ".join(said)


def full_disk(bench):
    check(DiskFull, 1, "cannot write", "File too large", "training goes on")(bench)
    found = bench.compare(bench.path("run"), bench.path("run"))
    need(found["verdict"] != "failed", f"the trace cannot be read: {found['sentence']}")
    return found["verdict"]


def killed(bench):
    """Rank 1 is killed in step 2: its trace is readable, and compare says that it is cut short."""
    a, _ = bench.train(Adam, 2, "a")

    class Killed(Adam):
        def before_step(self, step):
            if step == 3 and self.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        bench.train(Killed, 2, "b")
    except RuntimeError:
        pass
    found = bench.compare(a, bench.path("b"))
    need(found["verdict"] == "inconclusive" and ("stopped" in found["sentence"] or "end" in found["sentence"]), f"{found['verdict']}: {found['sentence']}")
    return found["sentence"][:200]


def levels_differ(bench):
    """Rank 1 records at level full, and rank 0 at hash."""

    class Mixed(Adam):
        def __init__(self, run, **more):
            super().__init__(run, level="full" if run.rank else "hash", **more)

    a, _ = bench.train(Adam, 2, "a")
    b, _ = bench.train(Mixed, 2, "b")
    found = bench.compare(a, b)
    need(found["verdict"] in ("identical", "inconclusive"), f"{found['verdict']}: {found['sentence']}")
    return found["verdict"]


def one_rank_without(bench):
    """Rank 1 has no probe."""

    class Half(Adam):
        def __init__(self, run, **more):
            super().__init__(run, lines=0 if run.rank else 3)

    a, _ = bench.train(Adam, 2, "a")
    b, _ = bench.train(Half, 2, "b")
    found = bench.compare(a, b)
    need("rank-1.trace" in found["sentence"], f"{found['verdict']}: {found['sentence']}")
    return found["sentence"][-160:]


def never_trained(bench):
    def program(run):
        model = models.Mlp()
        probe = lockstep_probe.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), out=run.folder)
        probe.step(torch.tensor(1.0))
        probe.finish()

    said = "".join(bench.run(program, 1, "run"))
    need("never trained" in said, f"said: {said}")
    return ""


def workers(bench):
    """Processes that a data loader forks write nothing."""

    class Loaded(Adam):
        def after_step(self, step):
            data = torch.utils.data.TensorDataset(models.X, models.Y)
            for x, y in DataLoader(data, batch_size=48, num_workers=2):
                assert x.shape == (48, models.FEATURES)

    check(Loaded, 1)(bench)
    need(sorted(p.name for p in pathlib.Path(bench.path("run")).iterdir()) == ["rank-0.probe.json", "rank-0.trace"], "other files")
    found = bench.compare(bench.path("run"), bench.path("run"))
    need(found["verdict"] == "identical", found["sentence"])
    return ""


def _case(name, *args, **more):
    return Case(f"bad input: {name}", check(*args, **more))


CASES = [
    _case("attached twice", Twice, 1, "has a probe already"),
    _case("parameters after the probe", Grown, 1, "parameters were added", "late.weight", "late.bias"),
    _case("rows and inputs of other lengths", WrongLengths, 1, "inputs or labels of shape [23, 12] for 24 ids"),
    _case("sample ids that are no numbers", NotRows, 1, "ValueError", "training goes on"),
    _case("another level", Adam, 1, "level 'all'; known: off, hash, stats, full", env={"LOCKSTEP_LEVEL": "all"}),
    _case("snapshots that are no steps", Adam, 1, "snapshots 'first'", env={"LOCKSTEP_SNAPSHOTS": "first"}),
    _case("a folder that cannot be made", Adam, 1, "cannot write /proc/traces", "training goes on", out="/proc/traces"),
    _case("an error of the probe itself", Broken, 2, "AttributeError", "nothing is recorded from step 1 on, and training goes on"),
    Case("bad input: an error of the probe itself, at once", broken_at_once),
    Case("bad input: a full disk", full_disk),
    Case("bad input: a killed rank", killed),
    Case("bad input: ranks of two levels", levels_differ),
    Case("bad input: a rank without a probe", one_rank_without),
    Case("bad input: a model that is never trained", never_trained),
    Case("bad input: workers of a data loader", workers),
]
