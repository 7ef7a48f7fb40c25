"""Mistakes of plain and DDP trainers: each is seen at its first step, and named where a name of `lockstep explain` fits; never by a wrong one.

check.py has those that `lockstep check` shows of a program without a line for it.
"""

import contextlib
import os
import pathlib

import torch
import torch.distributed as dist

import bits
import layouts
import models
from case import QUIET, Case, Problem, code_of, need
from layouts import HeadByHand, WideCopies
from trainer import ByHand, OwnersOfOne, Resumed, Trainer, Words

_references = {}


def reference(bench, kind, world):
    """The right run: once for all cases of this process that are compared with it."""
    key = (kind, world)
    if key not in _references:
        folder = pathlib.Path(bench.folder).parent / f"reference-{kind.__name__}-{world}-{len(_references)}-{os.getpid()}"
        own = type(bench)(bench.lockstep, folder)
        _references[key] = own.train(kind, world, "a")[0]
    return _references[key]


def judged(found, step, codes):
    """A word on the name; raises Problem if the mistake is not seen, at another step, or has a wrong name."""
    where, code = found["first_divergence"], code_of(found)
    need(found["verdict"] == "divergent", f"not seen: {found['verdict']}: {found['sentence']}")
    need(where["step"] == step, f"begins at step {step}, not {where['step']}: {found['sentence']}")
    if code in codes:
        return f"{code}"
    need(code in ("", "unexplained"), f"wrong name {code}, not {' or '.join(codes) or 'none'}: {found['sentence']}")
    return "not named"


def check(kind, world, codes, step=0, right=None, right_world=1, told=False):
    """`told`: the trainer gives the losses of its rows, which must give the name."""
    right = right or kind.__mro__[1]
    if told:
        right, kind = Told.of(right), Told.of(kind)

    def on_bench(bench):
        a = reference(bench, right, right_world)
        b, said = bench.train(kind, world, "b")
        found = bench.compare(a, b)
        try:
            word = judged(found, step, codes)
            need(not told or code_of(found) in codes, f"not named: {found['sentence']} {found['cause']}")
            return word
        except Problem as problem:
            raise Problem(f"{problem}\n{''.join(said)}") from None

    return on_bench


class Told:
    """Of a trainer that gives the probe the losses of its rows, and what each counts."""

    @classmethod
    def of(cls, kind):
        return type(kind.__name__, (cls, kind), {})

    def before_step(self, step):
        super().before_step(step)
        self.rows_told, self.counts = [], []

    def row_losses(self, called, x, y):
        rows = super().row_losses(called, x, y)
        self.rows_told.append(rows.detach())
        self.counts.append((y >= 0).sum(1) if y.dim() == 2 else torch.ones(len(rows)))
        return rows

    def told(self):
        return {"row_losses": torch.cat(self.rows_told), "counts": torch.cat(self.counts)}


class Accumulated(Trainer):
    micro = 3


class NotDivided(Accumulated):
    """Each micro-step's loss is the mean of its own rows."""

    def share(self, y, micros):
        return 1 / len(y)


class RateTimesWorld(Trainer):
    def make_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.rate * self.world)


class Long(Trainer):
    """Two epochs and more."""

    steps = 6


class SameEpoch(Long):
    def batch(self, step):
        return super().batch(step % 4)


class RowDropped(Trainer):
    """The last row of rank 1 never arrives."""

    def own_ids(self, step):
        ids = super().own_ids(step)
        return ids[:-1] if self.rank == 1 else ids


class Clipped(ByHand):
    clip = 0.05


class ClippedTwice(Clipped):
    """The norm is summed over ranks although the gradient is reduced already."""

    def clip_gradients(self):
        grads = [p.grad for p in self.model.parameters()]
        norm = (torch.nn.utils.get_total_norm(grads) ** 2 * self.world).sqrt()
        torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.clip, norm)


class MeanOfMeans(Words):
    def share(self, y, micros):
        return 1 / float((y >= 0).sum())


class Alike(Words):
    """Micro-steps' means over their own tokens count alike."""

    micro = 2

    def share(self, y, micros):
        return 1 / float((y >= 0).sum()) / len(micros)


class Deviation(Trainer):
    """Rows lose what they lose beside the deviation over all."""

    def sum_of_all(self, x):
        x = x.detach().clone()
        if self.world > 1:
            dist.all_reduce(x)
        return x

    def row_losses(self, called, x, y):
        rows = super().row_losses(called, x, y)
        count = self.sum_of_all(torch.tensor(float(len(rows))))
        mean = self.sum_of_all(rows.sum()) / count
        return rows / (self.sum_of_all(((rows - mean) ** 2).sum()) / count + 0.1).sqrt()


class OwnDeviation(Deviation):
    def sum_of_all(self, x):
        return x.detach().clone()


class NotZeroed(Trainer):
    def zero_grad(self):
        pass


class SkippedOnOneRank(Trainer):
    """Rank 1 leaves out the update of step 2."""

    def before_step(self, step):
        self.now = step

    def update(self):
        if self.now == 2 and self.rank == 1:
            self.probe.step()
            return
        super().update()


def compressed(world, bucket):
    """A communication hook of DistributedDataParallel that reduces in 16 bits."""
    narrow = bucket.buffer().to(torch.bfloat16).div_(world)
    work = dist.all_reduce(narrow, async_op=True).get_future()
    return work.then(lambda done: bucket.buffer().copy_(done.value()[0]))


class InBfloat16(Trainer):
    def wrap(self, model):
        model = super().wrap(model)
        if self.world > 1:
            model.register_comm_hook(self.world, compressed)
        return model


class LateParameter(Trainer):
    """The head is replaced after the wrapper was made: nobody reduces its gradient."""

    ddp = {"find_unused_parameters": True}

    def wrap(self, model):
        wrapped = super().wrap(model)
        if self.world > 1:
            head = torch.nn.Linear(16, models.CLASSES)
            head.load_state_dict(model.head.state_dict())
            model.head = head
        return wrapped


class Adam(Trainer):
    options = {"weight_decay": 0.01}

    def make_optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=0.01, **self.options)


class OtherEpsilon(Adam):
    options = {"weight_decay": 0.01, "eps": 1e-3}


class Coupled(Adam):
    make_optimizer = layouts.Adam.make_optimizer


class DecayOnHalf(Adam):
    """Decay reaches weights alone, and should reach all."""

    def make_optimizer(self):
        parameters = list(self.model.parameters())
        groups = [{"params": [p for p in parameters if p.dim() > 1]}, {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=0.01, **self.options)


class MomentsLost(Adam):
    """The optimizer is made anew before step 2, as after a resume that does not load it."""

    def before_step(self, step):
        if step == 2:
            for state in self.optimizer.state.values():
                state["exp_avg"].zero_()
                state["exp_avg_sq"].zero_()


class OwnersNotGathered(Resumed, OwnersOfOne):
    """Rank 0's state alone stands in the checkpoint: that of what others own is as it was at the beginning."""

    def loaded(self):
        for k, p in enumerate(self.all_parameters):
            if self.owner(k) != 0:
                self.optimizer.state.pop(p, None)


class NotUpdated(Adam):
    """The head is in no group."""

    def make_optimizer(self):
        return torch.optim.AdamW([p for n, p in self.model.named_parameters() if "head" not in n], lr=0.01, **self.options)


class Untied(bits.Tied):
    """The head starts as a copy of the embedding, and goes its own way."""

    def make_model(self):
        model = super().make_model()
        model.head.weight = torch.nn.Parameter(model.words.weight.detach().clone())
        return model


class WideCopiesApart(WideCopies):
    def average_gradients(self, parameters):
        pass


class HeadNotDivided(HeadByHand):
    def reduce(self):
        super().reduce()
        for p in self.model.head.parameters():
            p.grad *= self.world


class StaleOnOneRank(ByHand):
    """Rank 1 sends its gradient of the step before."""

    def reduce(self):
        now = [p.grad.clone() for p in self.model.parameters()]
        if self.rank == 1 and hasattr(self, "old"):
            for p, old in zip(self.model.parameters(), self.old):
                p.grad.copy_(old)
        self.old = now
        super().reduce()


def _case(kind, world, *codes, **more):
    words = "".join(" " + c.lower() if c.isupper() else c for c in kind.__name__).strip()
    return Case(f"mistake: {words}", check(kind, world, codes, **more))


class SyncsFirst(Accumulated):
    """The first micro-step is reduced, and the last ones are under no_sync."""

    def forward_backward(self, called, ids):
        total, micros = 0.0, self.micro_steps(ids)
        for number, part in enumerate(micros):
            self.probe.rows(part)
            with contextlib.nullcontext() if number == 0 or called is not self.called else self.held_back(called):
                y = self.labels(part)
                loss = self.row_losses(called, self.inputs(part), y).sum() * self.share(y, micros)
                loss.backward()
            total += loss.detach()
        return total


class Scheduled(Trainer):
    """The rate follows a schedule, which moves on whatever becomes of the update."""

    def update(self):
        super().update()
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.9


class LeavesOneOut(Scheduled):
    def update(self):
        if self.rank == 1 and self.probe.number == 2:
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.9
        else:
            super().update()


class InFloat32(Trainer):
    def row_losses(self, called, x, y):
        return super().row_losses(lambda x: called(x).float(), x, y)


class InFloat32NotDivided(InFloat32):
    def share(self, y, micros):
        return 1.001 * super().share(y, micros)


class Rewarded(Trainer):
    """Each row's loss counts by its advantage, over groups of rows, times the first ratio."""

    def rewards(self, ids):
        return torch.tensor([0.1 * (i * 7 % 11) + 0.03 * i for i in ids])

    def normalise(self, rewards, groups):
        of = [rewards[groups == g] for g in groups]
        return torch.stack([(r - own.mean()) / (own.std() + 1e-6) for r, own in zip(rewards, of)])

    def advantages(self, part, groups):
        own = [self.whole.index(i) for i in part]
        return self.normalise(self.rewards(self.whole), groups)[own]

    def ratios(self, part):
        return torch.ones(len(part))

    def before_step(self, step):
        self.whole = sorted(self.batch(step))

    def forward_backward(self, called, ids):
        groups = torch.arange(len(self.whole)) // 4
        own = groups[[self.whole.index(i) for i in ids]]
        advantages, ratios = self.advantages(ids, groups), self.ratios(ids)
        self.probe.rows(ids, rewards=self.rewards(ids), advantages=advantages, groups=own, ratios=ratios)
        loss = (self.row_losses(called, self.inputs(ids), self.labels(ids)) * advantages * ratios).sum() * self.world / self.rows
        loss.backward()
        return loss.detach()


class RewardsStay(Rewarded):
    def rewards(self, ids):
        return super().rewards(ids) * (self.rank == 0)


class OwnGroups(Rewarded):
    def advantages(self, part, groups):
        own = groups[[self.whole.index(i) for i in part]]
        return torch.nan_to_num(self.normalise(self.rewards(part), own))


class OverBatch(Rewarded):
    def advantages(self, part, groups):
        return super().advantages(part, torch.zeros_like(groups))


class OfPopulation(Rewarded):
    def normalise(self, rewards, groups):
        of = [rewards[groups == g] for g in groups]
        return torch.stack([(r - own.mean()) / (own.std(unbiased=False) + 1e-6) for r, own in zip(rewards, of)])


class OldLogProbs(Rewarded):
    def ratios(self, part):
        return torch.ones(len(part)) + 0.01 * (self.rank == 1)


def _rewarded(kind, code=""):
    """`code`: empty, of a right run."""

    def on_bench(bench):
        a, b = (bench.train(each, world, name, lines=3)[0] for each, world, name in ((Rewarded, 1, "a"), (kind, 3, "b")))
        found = bench.compare(a, b)
        need(found["verdict"] in QUIET if not code else code_of(found) == code, f"{code_of(found)}: {found['sentence']}")
        return code or found["verdict"]

    return Case(f"mistake: rewards, {code or 'none'}", on_bench)


CASES = [
    _rewarded(Rewarded),
    _rewarded(RewardsStay, "reward-not-broadcast"),
    _rewarded(OwnGroups, "local-advantage-statistics"),
    _rewarded(OverBatch, "other-estimator"),
    _rewarded(OfPopulation, "advantage-other-ddof"),
    _rewarded(OldLogProbs, "first-ratio-not-1"),
    _case(NotDivided, 2, "accumulation-not-scaled"),
    _case(RateTimesWorld, 3, "rate-scaled-linear"),
    _case(SameEpoch, 2, "set-epoch-forgotten", step=4),
    _case(RowDropped, 3, "sample-dropped"),
    _case(ClippedTwice, 3, "clip-twice"),
    _case(MeanOfMeans, 3, "mean-of-means", told=True),
    _case(Alike, 1, "micro-steps-weighted-alike"),
    _case(OwnDeviation, 3, "local-statistics"),
    _case(NotZeroed, 3, "gradients-not-zeroed", step=1),
    _case(SkippedOnOneRank, 3, "skip-decided-alone", "rank-behind", step=2),
    _case(SyncsFirst, 3, "micro-steps-not-reduced"),
    _case(LeavesOneOut, 3, "skip-decided-alone", "rank-behind", step=2),
    _case(InFloat32NotDivided, 3, "constant-factor"),
    _case(InBfloat16, 3, "reduced-in-low-precision"),
    _case(LateParameter, 3, "parameter-not-reduced"),
    _case(OtherEpsilon, 2, "config-differs"),
    _case(Coupled, 2, "decay-coupled", "config-differs"),
    _case(DecayOnHalf, 2, "weight-decay-missing", "wrong-parameter-group", "config-differs"),
    _case(MomentsLost, 2, "optimizer-state-lost", step=2, right_world=2),
    _case(OwnersNotGathered, 2, "optimizer-state-lost", step=2, right=OwnersOfOne),
    _case(NotUpdated, 2, "parameter-not-updated"),
    _case(Untied, 2),
    _case(WideCopiesApart, 2, "gradient-not-reduced"),
    _case(HeadNotDivided, 3, "gradient-sum-not-mean", "gradient-times-world"),
    _case(StaleOnOneRank, 3, "stale-gradient", step=1),
]  # fmt: skip
