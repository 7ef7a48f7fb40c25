"""Faults of candidates, of statistics and of the loss."""

import torch

from planted import planted
from twin import Fault


@planted("local-negatives", first=0)
class local_negatives(Fault):
    """only candidates of the rank itself"""

    def gathered(self, t, own):
        return own

    def scored(self, t, energies, ids, labels):
        rows = len(labels)
        return energies, ids[t.rank * rows :][:rows], torch.arange(rows)


@planted("negatives-missing")
class negatives_missing(Fault):
    """candidates of the next rank are lost on a rank"""

    def scored(self, t, energies, ids, labels):
        if t.s.world == 1 or not (self.on(t) and self.after(t)):
            return energies, ids, labels
        rows, lost = len(labels), (t.rank + 1) % t.s.world
        kept = torch.tensor([c for c in range(len(ids)) if c // rows != lost])
        return energies[:, kept], ids[kept], torch.tensor([kept.tolist().index(c) for c in labels.tolist()])


@planted("candidates-misordered")
class candidates_misordered(Fault):
    """gathered candidates are shifted by one place from their ids"""

    def encoded(self, t, rows, columns):
        return (rows, columns.roll(1, 0)) if self.after(t) else (rows, columns)


@planted("candidates-in-low-precision")
class low_precision_candidates(Fault):
    """encoded candidates pass through bfloat16"""

    def encoded(self, t, rows, columns):
        return (rows, columns.bfloat16().float()) if self.after(t) else (rows, columns)


@planted("label-offset")
class label_offset(Fault):
    """labels count from 0 on every rank"""

    def scored(self, t, energies, ids, labels):
        return energies, ids, torch.arange(len(labels)) if self.after(t) else labels


@planted("loss-times-world gradient-times-world", says="world size|times the world")
class loss_times_world(Fault):
    """the loss times the world size"""

    def loss(self, t, loss):
        return loss * t.s.world if self.after(t) else loss


@planted("loss-over-world gradient-over-world")
class loss_over_world(Fault):
    """the loss over the world size"""

    def loss(self, t, loss):
        return loss / t.s.world if self.after(t) else loss


@planted("mean-of-means collective-missing", "classify", first=0, says="normali[sz]|total count|loss_accounting")
class mean_of_means(Fault):
    """each rank averages over its own tokens, of which there are unequal numbers"""

    def count(self, t, own):
        return own * t.s.world

    def part_weight(self, t, ids):
        return t.s.world / (t.tokens(ids) * t.s.world * t.s.accumulation)


@planted("temperature-applied-twice")
class temperature_applied_twice(Fault):
    """energies are divided by the temperature twice"""

    def temperature(self, t):
        return super().temperature(t) ** (2 if self.after(t) else 1)


@planted("gather-without-gradient candidates-detached", first=0, says="action_encoder.*gradient")
class candidates_detached(Fault):
    """a plain gather of encoded candidates, without gradient"""

    def gathered(self, t, own):
        return super().gathered(t, own).detach() + 0.0 * own.sum()  # DDP waits for every parameter's gradient


@planted("gather-backward-sliced gather-own-slice", first=0)
class own_slice(Fault):
    """a plain gather with the own slice put back in: other ranks' losses give this one's candidates no gradient"""

    def gathered(self, t, own):
        everything = super().gathered(t, own).detach()
        place = t.rank * len(own)
        return torch.cat([everything[:place], own, everything[place + len(own) :]])


class _Average(torch.autograd.Function):
    @staticmethod
    def forward(ctx, everything, world):
        ctx.world = world
        return everything.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / ctx.world, None


@planted("gather-averaged", first=0)
class gather_average(Fault):
    """a gather whose backward averages over ranks"""

    def gathered(self, t, own):
        return _Average.apply(super().gathered(t, own), t.s.world)


@planted("temperature-detached", first=0, says="log_tau")
class temperature_detached(Fault):
    """the temperature enters the loss without its gradient"""

    def temperature(self, t):
        tau = super().temperature(t)
        return tau.detach() + 0.0 * t.model.log_tau


@planted("context-detached", first=0, says="context_encoder")
class context_detached(Fault):
    """encoded contexts enter the loss without their gradient"""

    def encoded(self, t, rows, columns):
        return rows.detach() + 0.0 * rows, columns


@planted("batch-norm-local", "norm", first=0, says="BatchNorm", extra=True)
class batch_norm_local(Fault):
    """each rank normalises by the statistics of its own rows"""

    def statistics(self, t, value):
        return value

    def wrapping(self, t):
        return dict(broadcast_buffers=False)
