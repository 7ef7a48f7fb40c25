"""Gradient norms over the wrong parts, and clipping by them."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from launch import Case
from models import CLASS, CLASSES, FEATURES, WIDTH, Copied, Mlp, Summed, step_ids
from probe import Placement, Probe, held

STEPS, RATE, ROWS, LIMIT = 4, 0.2, 12, 0.2


def train_clipped(run, model, norm_of, rows_of, listen=(), **declared):
    """`norm_of(params)`: what the program takes for the norm of the whole gradient. `rows_of(ids)`: this rank's."""
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=RATE, foreach=False)
    probe = Probe(run, model, optimizer, global_batch=ROWS, clip_norm=LIMIT, **declared)
    for step in probe.steps(STEPS):
        ids = rows_of(step_ids(step, ROWS))
        probe.begin(step, ids, FEATURES[ids])
        optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(model(FEATURES[ids]), CLASS[ids], reduction="none")
            probe.listen_to_unsharded(*listen)
            rows.mean().backward()
        probe.gradients(ids, rows)
        norm = norm_of(params)
        probe.norm(norm)
        for p in params:
            p.grad = p.grad * min(1.0, LIMIT / (float(norm) + 1e-6))
        probe.applied()
        optimizer.step()
        probe.end()


def squares(params):
    return sum((held(p.grad) ** 2).sum() for p in params)


class Tensors(nn.Module):
    """Two layers over tensor ranks; the norm, the last bias and the head are on each of them."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 8)
        self.down = nn.Linear(8, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(x + self.down(torch.tanh(self.up(self.norm(x)))))


def replicated_counted_on_each_tensor_rank(run):
    model = Tensors()
    if run.world > 1:
        parallelize_module(model, init_device_mesh("cpu", (run.world,)), {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def norm_of(params):
        if run.world == 1 or run.wrong:
            return run.sum(squares(params)).sqrt()
        shards = [p for p in params if isinstance(p, DTensor) and not p.placements[0].is_replicate()]
        return (run.sum(squares(shards)) + squares([p for p in params if not any(p is s for s in shards)])).sqrt()

    tensor = dict(groups={"tensor": list(range(run.world))}, replicas=[[r] for r in range(run.world)])
    train_clipped(run, model, norm_of, lambda ids: ids, **(tensor if run.world > 1 else {}))


class OwnParts(nn.Module):
    """The same with parts made by hand: a column-parallel and a row-parallel layer between two autograd functions."""

    def __init__(self, run):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        up, down, self.head = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH), nn.Linear(WIDTH, CLASSES)
        size = 12 // run.world
        part = slice(run.rank * size, (run.rank + 1) * size)
        self.up_weight = nn.Parameter(up.weight.detach()[part].clone())
        self.up_bias = nn.Parameter(up.bias.detach()[part].clone())
        self.down_weight = nn.Parameter(down.weight.detach()[:, part].clone())
        if run.world > 1:
            self.up_weight.placement = Placement((12, WIDTH), (part.start, 0))
            self.up_bias.placement = Placement((12,), (part.start,))
            self.down_weight.placement = Placement((WIDTH, 12), (0, part.start))

    def forward(self, x):
        inner = F.linear(Copied.apply(self.norm(x)), self.up_weight, self.up_bias)
        return self.head(x + Summed.apply(F.linear(torch.tanh(inner), self.down_weight)))


def replicated_counted_by_hand(run):
    model = OwnParts(run)

    def norm_of(params):
        if run.world == 1 or run.wrong:
            return run.sum(squares(params)).sqrt()
        parts = [p for p in params if hasattr(p, "placement")]
        return (run.sum(squares(parts)) + squares([p for p in params if not hasattr(p, "placement")])).sqrt()

    tensor = dict(groups={"tensor": list(range(run.world))}, replicas=[[r] for r in range(run.world)])
    train_clipped(run, model, norm_of, lambda ids: ids, **(tensor if run.world > 1 else {}))


def norm_over_replicas_too(run):
    """HSDP: squares are summed over all ranks, where the two ranks of a shard group hold the whole gradient."""
    model, shards = Mlp(), None
    if run.world > 1:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh)
        shards = mesh["shard"].get_group()
    groups = {"shards 0": [0, 1], "shards 1": [2, 3], "replicas 0": [0, 2], "replicas 1": [1, 3]} if run.world > 1 else None
    train_clipped(run, model, lambda params: run.sum(squares(params), None if run.wrong else shards).sqrt(),
                  lambda ids: ids[run.rank :: run.world], [model] if run.world > 1 else [], groups=groups)  # fmt: skip


def norm_of_the_local_value(run):
    """FSDP2: the norm of each rank's own shards."""
    model = Mlp()
    if run.world > 1:
        fully_shard(model)
    train_clipped(run, model, lambda params: squares(params).sqrt() if run.wrong else run.sum(squares(params)).sqrt(),
                  lambda ids: ids[run.rank :: run.world], [model] if run.world > 1 else [])  # fmt: skip


NORM = ("gradient norm",)
CASES = [
    Case("NVIDIA-NeMo/RL#3788", "replicated parameters counted on each tensor rank", ("replicated-counted-in-norm",),
         replicated_counted_on_each_tensor_rank, NORM),
    Case("ROCm/TransformerEngine#715", "the same, with parts made by hand", ("replicated-counted-in-norm",),
         replicated_counted_by_hand, NORM, ranks=3),
    Case("ByteDance-Seed/VeOmni#184", "HSDP: the norm is summed over replicas too", ("clip-twice",), norm_over_replicas_too,
         NORM, ranks=4),
    Case("pytorch/pytorch#170862", "FSDP2: the norm of the local value", ("norm-of-own-shard",), norm_of_the_local_value, NORM,
         ranks=3),
]  # fmt: skip
