"""Mean teachers: what a replay function calls of the averages has the weights of the replayed step, and is afterwards as training left it."""

import copy
import json

import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel

import models
from case import Case, code_of, need
from lockstep_probe import trace_file
from trainer import Trainer


class Teaches(Trainer):
    """Learns from labels, and from an average of itself."""

    decay = 0.5

    def make_model(self):
        model = super().make_model()
        self.teacher = self.make_teacher(model)
        return model

    def make_teacher(self, model):
        return copy.deepcopy(model).requires_grad_(False)

    def average(self):
        return self.teacher

    def taught(self, x):
        with torch.no_grad():
            return self.teacher(x)

    def row_losses(self, called, x, y):
        out = called(x)
        return F.cross_entropy(out, y, reduction="none") + 5 * F.mse_loss(out, self.taught(x).to(out.dtype), reduction="none").mean(1)

    def update(self):
        super().update()
        with torch.no_grad():
            for a, p in zip(self.teacher.parameters(), self.model.parameters()):
                a.mul_(self.decay).add_(p, alpha=1 - self.decay)

    def train(self):
        """Tensors of the teacher at the end of training, as they are and as copies."""
        super().train()
        self.at_end = [(t, t.data_ptr(), t.clone()) for t in self.teacher.state_dict(keep_vars=True).values()]
        return self


class WithBuffers(Teaches):
    """The teacher normalizes with statistics of its own, which each of its forward passes moves."""

    def make_model(self):
        model = models.Conv()
        self.teacher = self.make_teacher(model)
        return model

    def inputs(self, ids):
        return models.SERIES[ids]


class Averaged(Teaches):
    def make_teacher(self, model):
        return AveragedModel(model, avg_fn=lambda a, p, _n: self.decay * a + (1 - self.decay) * p)

    def update(self):
        Trainer.update(self)
        self.teacher.update_parameters(self.model)


class DecaysSlowly(Teaches):
    decay = 0.9


class TeachesHalfAgain(Teaches):
    """The part of the teacher counts one and a half times."""

    def row_losses(self, called, x, y):
        own = F.cross_entropy(called(x), y, reduction="none")
        return own + 1.5 * (super().row_losses(called, x, y) - own)


class NotGiven(Teaches):
    def average(self):
        return None


class Fails(Teaches):
    """The replay function itself fails, once it has called the teacher."""

    def row_losses(self, called, x, y):
        rows = super().row_losses(called, x, y)
        if called is not self.called:
            raise ValueError("in vain")
        return rows


def trained(bench, kind, world, name, **options):
    """Trains and replays; the teacher's tensors are those of training afterwards."""

    def program(run):
        trainer = kind(run, lines=10, **options).train()
        trainer.probe.finish()
        for tensor, place, was in trainer.at_end:
            assert tensor.data_ptr() == place and tensor.dtype == was.dtype and torch.equal(tensor, was), "the teacher was changed"
        assert not trainer.teacher._forward_pre_hooks and not getattr(trainer.teacher, "module", trainer.teacher)._forward_pre_hooks, "hooks stay"

    return bench.path(name), "".join(bench.run(program, world, name))


def quiet(kind, world=2):
    def on_bench(bench):
        a, said = trained(bench, kind, 1, "a")
        need("replay:" not in said, said)
        b, said = trained(bench, kind, world, "b", against=a)
        facts = json.loads((bench.folder / "b" / "rank-0.probe.json").read_text())
        need("replay:" not in said and facts["replay"] and facts["float64"], said)
        found = bench.compare(a, b)
        need(found["verdict"] == ("within_envelope" if world > 1 else "identical"), f"{found}")
        return found["verdict"]

    return on_bench


def named(kind, *codes):
    def on_bench(bench):
        a, _ = trained(bench, Teaches, 1, "a")
        b, _ = trained(bench, kind, 2, "b", against=a)
        found = bench.compare(a, b)
        need(found["verdict"] == "divergent" and code_of(found) in codes, f"{found}")
        return code_of(found)

    return on_bench


def snapshots(bench):
    """A step's snapshot has the averages and their buffers as the step before left them."""
    trained(bench, WithBuffers, 1, "a")
    steps = dict(trace_file.read_steps(bench.path("a/rank-0.trace")))

    def values(step, phase, start=""):
        return {r.name.removeprefix(start): r.values for r in steps[step] if r.phase == trace_file.PHASES[phase] and r.name.startswith(start)}

    kept, left = values(2, "snapshot", "average/"), values(1, "averaged weights")
    need({"conv.weight", "buffer/norm.running_mean"} <= kept.keys(), f"{sorted(kept)}")
    need(len(left) == 6 and all(torch.equal(kept[name], left[name]) for name in left), "averages of step 1 and of step 2's snapshot differ")


def not_given(bench):
    """Without average= the teacher has the weights of the end: the function is refused, as before."""
    _, said = trained(bench, NotGiven, 1, "a")
    need("does not reproduce the run's own step" in said, said)


def reference_without(bench):
    """A reference that has not recorded the averages cannot give them back."""
    trained(bench, NotGiven, 1, "a")
    _, said = trained(bench, Teaches, 1, "b", against=bench.path("a"))
    need("the snapshot of step 0 has no average/first.weight for it" in said, said)


def fails(bench):
    _, said = trained(bench, Fails, 1, "a")
    need("in vain" in said, said)


CASES = [
    Case("teacher: one process and two ranks", quiet(Teaches)),
    Case("teacher: BatchNorm", quiet(WithBuffers, world=1)),
    Case("teacher: AveragedModel", quiet(Averaged)),
    Case("teacher: slower decay", named(DecaysSlowly, "average-of-weights-differs")),
    Case("teacher: another weight", named(TeachesHalfAgain, "unexplained", "")),
    Case("teacher: averages in snapshots", snapshots),
    Case("teacher: not given", not_given),
    Case("teacher: a reference without", reference_without),
    Case("teacher: a function that fails", fails),
]
