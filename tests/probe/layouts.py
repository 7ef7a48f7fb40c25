"""Pairs that train alike: compare is quiet."""

import contextlib
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import bits
import models
import parallel
from case import QUIET, Case, need
from trainer import ByHand, Owners, OwnersOfOne, Resumed, Sharded, ShardedWords, Trainer, Words

def check(reference, ranks, kind, world):
    def on_bench(bench):
        a, _ = bench.train(reference, ranks, "a")
        b, said = bench.train(kind, world, "b")
        found = bench.compare(a, b)
        need(found["verdict"] in QUIET, f"{found['verdict']}: {found['sentence']}\n{''.join(said)}")
        return found["verdict"]

    return on_bench


class Unequal(Trainer):
    """Ranks with 11, 9 and 4 rows."""

    def own_ids(self, step):
        ends = [0, 11, 20, 24]
        return self.batch(step)[ends[self.rank] : ends[self.rank + 1]] if self.world > 1 else self.batch(step)


class InBlocks(Trainer):
    """Each rank takes a block of the batch, from its end."""

    def own_ids(self, step):
        size = self.rows // self.world
        return self.batch(step)[self.rank * size : (self.rank + 1) * size][::-1]


class Accumulated(Trainer):
    @property
    def micro(self):
        return 4 if self.world > 1 else 1


class Hybrid(ShardedWords):
    """HSDP: two replicas of two shards."""

    def mesh(self):
        if not hasattr(self, "two_by_two"):
            self.two_by_two = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        return self.two_by_two


class Momentum(Trainer):
    def make_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


class Adam(Trainer):
    clip = 0.05

    def make_optimizer(self):
        return torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=0.01)


class Groups(Trainer):
    """Weights decay, biases do not; the head has another rate; a schedule."""

    def make_optimizer(self):
        named = dict(self.model.named_parameters())
        groups = [{"params": [p for n, p in named.items() if p.dim() > 1 and "head" not in n]},
                  {"params": [p for n, p in named.items() if p.dim() == 1 and "head" not in n], "weight_decay": 0.0},
                  {"params": [p for n, p in named.items() if "head" in n], "lr": 0.002}]  # fmt: skip
        optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)
        self.schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, 4)
        return optimizer

    def after_step(self, step):
        self.schedule.step()


class ClippedByHand(ByHand):
    """Reduces and clips without a word to PyTorch."""

    def clip_gradients(self):
        norm = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm()
        for p in self.model.parameters():
            p.grad.mul_(min(1.0, 0.05 / (float(norm) + 1e-6)))


class Centre(torch.nn.Module):
    """One buffer, which each forward pass moves."""

    def __init__(self):
        super().__init__()
        self.net = models.Mlp()
        self.register_buffer("centre", torch.zeros(16))

    def forward(self, x):
        if self.training:
            self.centre.mul_(0.5).add_(0.25)
        return self.net(x)


class WithCentre(Trainer):
    def make_model(self):
        return Centre()


class Metrics(Trainer):
    """Evaluates every second step, with collectives of its own; logs a mean of losses."""

    def after_step(self, step):
        with torch.no_grad():
            self.run.mean(torch.ones(1))
            if step % 2:
                self.model.eval()
                ids = list(range(self.rank, 24, self.world))
                hits = (self.model(models.X[ids]).argmax(1) == models.Y[ids]).sum()
                self.model.train()
                total = self.run.sum(hits)
                if self.probe is not None:
                    self.probe.metric("accuracy", float(total) / 24)


class OwnersResumed(Resumed, OwnersOfOne):
    """Owners have gathered their state for the checkpoint, and each rank loads all of it."""

    def loaded(self):
        for k, p in enumerate(self.all_parameters):
            dist.broadcast_object_list(state := [self.optimizer.state.get(p)], self.owner(k))
            self.optimizer.state[p] = state[0]


class EachReduced(Accumulated):
    def held_back(self, called):
        return contextlib.nullcontext()


class OwnBuffer(Accumulated):
    """Gradients of micro-steps are added up in the trainer's own buffers, and handed to the optimizer when they are reduced."""

    def wrap(self, model):
        self.buffers, self.takers = [torch.zeros(p.shape) for p in model.parameters()], list(model.parameters())
        return model

    def zero_grad(self):
        super().zero_grad()
        for buffer in self.buffers:
            buffer.zero_()

    def backward(self, loss):
        loss.backward()
        for p, buffer in zip(self.model.parameters(), self.buffers):
            if p.grad is not None:
                buffer += p.grad
                p.grad = None

    def reduce(self):
        for p, buffer in zip(self.takers, self.buffers):
            p.grad = buffer.clone()
        self.average_gradients(self.takers)


class MainCopies(OwnBuffer):
    """The optimizer has copies of the parameters, which get the sum of the trainer's buffers."""

    def wrap(self, model):
        model = super().wrap(model)
        self.takers = [torch.nn.Parameter(p.detach().clone().float()) for p in model.parameters()]
        return model

    def make_optimizer(self):
        return torch.optim.SGD(self.takers, lr=self.rate)

    def update(self):
        super().update()
        with torch.no_grad():
            for p, copy in zip(self.model.parameters(), self.takers):
                p.copy_(copy)


class WideCopies(MainCopies):
    """The same of a model in bfloat16."""

    def make_model(self):
        return super().make_model().bfloat16()

    def inputs(self, ids):
        return super().inputs(ids).bfloat16()


class SyncedOutside(Accumulated):
    """Every micro-step is under no_sync, and gradients are reduced by hand."""

    def forward_backward(self, called, ids):
        with self.held_back(called):
            return super().forward_backward(called, ids)

    reduce = ByHand.reduce


class HeadByHand(Trainer):
    """DistributedDataParallel ignores the head."""

    def wrap(self, model):
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["head.weight", "head.bias"])
        return super().wrap(model)

    def reduce(self):
        self.average_gradients(self.model.head.parameters())


class Narrow(Trainer):
    """The loss is computed in float32, and what it is divided by is a float32 sum over ranks, which the function changes in place."""

    def row_losses(self, called, x, y):
        count = torch.tensor([float(len(y))], dtype=torch.float32)
        if self.world > 1:
            dist.all_reduce(count)
        return F.cross_entropy(called(x).float(), y, reduction="none") * (7 / count).float().square()


class StaysNarrow(Trainer):
    """Logits pass through a float32 tensor of the trainer's own: no float64 is possible."""

    def row_losses(self, called, x, y):
        if not hasattr(self, "logits"):
            self.logits = torch.zeros(models.SAMPLES, models.CLASSES)
        return F.cross_entropy(Through.apply(called(x), self.logits), y, reduction="none")


class Through(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, out, held):
        held[: len(out)].copy_(out)
        return held[: len(out)] + torch.zeros_like(out)

    @staticmethod
    def backward(_ctx, gradient):
        return gradient, None


class Exchanged(Trainer):
    """Features go to other ranks in unequal pieces, and come back."""

    def row_losses(self, called, x, y):
        out = called(x)
        if self.world > 1:
            shares = [2, *[0] * (self.world - 2), len(y) - 2]
            came = [[2, *[0] * (self.world - 2), len(y) - 2][self.rank]] * self.world
            out = Exchange.apply(Exchange.apply(out, shares, came), came, shares)
        return F.cross_entropy(out, y, reduction="none")


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, there, here):
        ctx.splits = there, here
        out = x.new_empty(sum(here), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), here, there)
        return out

    @staticmethod
    def backward(ctx, gradient):
        there, here = ctx.splits
        out = gradient.new_empty(sum(there), *gradient.shape[1:])
        dist.all_to_all_single(out, gradient.contiguous(), there, here)
        return out, None, None


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

    def row_losses(self, called, x, y):
        out = called(x)
        with torch.no_grad():
            taught = self.teacher(x)
        return F.cross_entropy(out, y, reduction="none") + 5 * F.mse_loss(out, taught, reduction="none").mean(1)

    def update(self):
        super().update()
        with torch.no_grad():
            for a, p in zip(self.teacher.parameters(), self.model.parameters()):
                a.mul_(self.decay).add_(p, alpha=1 - self.decay)


class TeachesWithBuffers(Teaches):
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


def _case(name, reference, ranks, kind, world):
    return Case(f"quiet: {name}", check(reference, ranks, kind, world))


CASES = [
    _case("1x24 and 8x3", Trainer, 1, Trainer, 8),
    _case("1x24 and 3x8", Trainer, 1, Trainer, 3),
    _case("3x8 twice", Trainer, 3, Trainer, 3),
    _case("unequal rows", Unequal, 1, Unequal, 3),
    _case("rows in another order", Trainer, 1, InBlocks, 2),
    _case("accumulation 2x4x3", Accumulated, 1, Accumulated, 2),
    _case("accumulation, each micro-step reduced", EachReduced, 1, EachReduced, 2),
    _case("resumed, one layout", Trainer, 2, Resumed, 2),
    _case("resumed, another layout", Trainer, 1, Resumed, 2),
    _case("tokens with padding", Words, 1, Words, 2),
    _case("tied weights", bits.Tied, 1, bits.Tied, 2),
    _case("FSDP2 and 1 process", Sharded, 1, Sharded, 2),
    _case("FSDP2 and DDP", Trainer, 3, Sharded, 3),
    _case("FSDP2 of a transformer", ShardedWords, 1, ShardedWords, 3),
    _case("HSDP", ShardedWords, 1, Hybrid, 4),
    _case("FSDP2, accumulation and clipping", bits.ShardedAccumulated, 1, bits.ShardedAccumulated, 2),
    _case("tensor parallel", parallel.Tensor, 1, parallel.Tensor, 2),
    _case("tensor parallel in FSDP2", parallel.ShardedTensor, 1, parallel.ShardedTensor, 4),
    _case("pipeline of two stages", parallel.Pipeline, 1, parallel.Pipeline, 2),
    _case("SGD with momentum", Momentum, 1, Momentum, 2),
    _case("Adam, clipping", Adam, 1, Adam, 2),
    _case("parameter groups and a schedule", Groups, 1, Groups, 2),
    _case("dropout, one layout", bits.Dropout, 2, bits.Dropout, 2),
    _case("reduced by hand", ByHand, 1, ByHand, 3),
    _case("owners send what they update", Owners, 1, Owners, 3),
    _case("owners, one layout", Owners, 2, Owners, 2),
    _case("owners with everybody's state, resumed", OwnersOfOne, 1, OwnersResumed, 2),
    _case("reduced and clipped by hand", ClippedByHand, 1, ClippedByHand, 3),
    _case("reduced and clipped by hand, two layouts", ClippedByHand, 2, ClippedByHand, 3),
    _case("a buffer that the forward pass writes", WithCentre, 1, WithCentre, 3),
    _case("micro-steps in the trainer's own buffers", OwnBuffer, 1, OwnBuffer, 2),
    _case("main copies of parameters", MainCopies, 1, MainCopies, 2),
    _case("main copies of parameters in bfloat16", WideCopies, 1, WideCopies, 2),
    _case("no_sync throughout, reduced by hand", SyncedOutside, 1, SyncedOutside, 2),
    _case("a head that DDP ignores, reduced by hand", HeadByHand, 1, HeadByHand, 3),
    _case("a loss in float32", Narrow, 1, Narrow, 3),
    _case("a loss that stays in float32", StaysNarrow, 1, StaysNarrow, 3),
    _case("pieces of unequal size go to other ranks", Exchanged, 1, Exchanged, 3),
    _case("two optimizers", parallel.Adversaries, 1, parallel.Adversaries, 2),
    _case("two optimizers, one within the other's step", parallel.DiscriminatorFirst, 1, parallel.DiscriminatorFirst, 2),
    _case("GradScaler, one update left out", bits.Scaled, 1, bits.Scaled, 2),
    _case("evaluation with collectives", Metrics, 1, Metrics, 2),
    _case("frozen parameters", bits.Frozen, 1, bits.Frozen, 2),
    _case("sparse gradients", bits.Sparse, 1, bits.Sparse, 2),
    _case("wrapped anew", bits.Thawed, 1, bits.Thawed, 3),
    _case("hooks that reduce", bits.HooksReduce, 1, bits.HooksReduce, 4),
    _case("flat pieces", bits.Flat, 1, bits.Flat, 3),
    _case("one rank makes the updates", bits.Served, 1, bits.Served, 3),
    _case("FSDP1", bits.FlatParameters, 1, bits.FlatParameters, 2),
    _case("a teacher", Teaches, 1, Teaches, 2),
    _case("a teacher with BatchNorm", TeachesWithBuffers, 1, TeachesWithBuffers, 1),
    _case("a teacher, AveragedModel", Averaged, 1, Averaged, 2),
    _case("a rank leaves a parameter out", bits.Unused, 2, bits.Unused, 2),
]  # fmt: skip
