"""Updates that differ though the gradients are right, averages of the weights, and initial weights of shards."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from launch import Case, dist
from models import CLASS, CLASSES, FEATURES, WIDTH, Copied, Mlp, Summed, step_ids
from probe import Placement, Probe

STEPS, ROWS = 4, 8


def classify(run, probe, forward, update, ids_of=None, listen=(), averages=None):
    """`update()` makes the update from the parameters' gradients; `averages`: of the weights, by name, updated by it too."""
    probe.initial(averages)
    for step in range(STEPS):
        ids = step_ids(step, ROWS)
        ids = ids_of(ids) if ids_of else ids[run.rank :: run.world]
        probe.begin(step, ids, FEATURES[ids])
        probe.optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(forward(FEATURES[ids]), CLASS[ids], reduction="none")
            probe.listen_to_unsharded(*listen)
            rows.mean().backward()
        probe.gradients(ids, rows)
        update()
        if ids_of is None:  # Each rank evaluates its part of the held-out samples.
            ids = list(range(48 + run.rank, 64, run.world))
            with torch.no_grad():
                probe.writer.tensor("evaluation", "held_out_loss", F.cross_entropy(forward(FEATURES[ids]), CLASS[ids],
                                                                                   reduction="none"), ids=ids)  # fmt: skip
        probe.end(averages)
    probe.finish()


def orthogonal(matrix):
    """Newton and Schulz's iteration towards the nearest orthogonal matrix."""
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(6):
        x = 1.5 * x - 0.5 * x @ x.t() @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, shards=False):
        super().__init__(params, dict(lr=0.1))
        self.shards = shards

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                whole = p.grad.full_tensor() if isinstance(p.grad, DTensor) and not self.shards else None
                own, gradient = (t.to_local() if isinstance(t, DTensor) else t for t in (p, p.grad))
                if p.dim() < 2:
                    own -= group["lr"] * gradient
                elif whole is None:
                    own -= group["lr"] * orthogonal(gradient)
                else:
                    rank, world = dist.get_rank(), dist.get_world_size()
                    own -= group["lr"] * orthogonal(whole).chunk(world)[rank]


def muon_of_each_shard(run):
    model = Mlp()
    if run.world > 1:
        fully_shard(model)
    optimizer = Muon(model.parameters(), shards=run.wrong)
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    classify(run, probe, model, optimizer.step, listen=[model] if run.world > 1 else [])


def warm_up_step_counts(run):
    """A step with gradients of 0 warms the graph up before the training, and advances Adam's counter."""
    model = Mlp()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if run.wrong:
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        optimizer.zero_grad()
    classify(run, Probe(run, model, optimizer, global_batch=ROWS, base_rate=0.01), ddp, optimizer.step)


def average_of_the_wrong_sign(run):
    decay = 0.9
    model = Mlp()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    averages = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update():
        optimizer.step()
        for name, p in model.named_parameters():
            difference = (1 - decay) * (averages[name] - p.detach())
            averages[name] += difference if run.wrong else -difference

    classify(run, Probe(run, model, optimizer, global_batch=ROWS, average_decay=decay), ddp, update, averages=averages)


class RowParallelLora(nn.Module):
    """A frozen layer and its adapter whose input, and so the columns of A, are split over tensor ranks."""

    def __init__(self, run, inputs, outputs, rank=2):
        super().__init__()
        self.columns = slice(run.rank * inputs // run.world, (run.rank + 1) * inputs // run.world)
        base, width = torch.randn(outputs, inputs) * 0.5, inputs // run.world
        fan = width if run.wrong else inputs
        whole = torch.randn(rank, inputs) / math.sqrt(fan)
        self.register_buffer("base", base[:, self.columns].clone(), persistent=False)
        self.a = nn.Parameter(whole[:, self.columns].clone())
        self.b = nn.Parameter(torch.randn(outputs, rank) * 0.1)
        if run.world > 1:
            self.a.placement = Placement((rank, inputs), (0, run.rank * width))
            self.b.placement = Placement((outputs, rank), replicated=True)

    def forward(self, x):
        own = x[:, self.columns]
        return Summed.apply(own @ self.base.t()) + Summed.apply(own @ self.a.t()) @ self.b.t()


class Adapted(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.up = nn.Linear(WIDTH, 16).requires_grad_(False)
        self.adapted = RowParallelLora(run, 16, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.adapted(Copied.apply(torch.tanh(self.up(x))))))


def fan_of_the_shard(run):
    model = Adapted(run)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.2)
    tensor = dict(groups={"tensor": list(range(run.world))}, replicas=[[r] for r in range(run.world)])
    probe = Probe(run, model, optimizer, global_batch=ROWS, **(tensor if run.world > 1 else {}))
    classify(run, probe, model, optimizer.step, ids_of=lambda ids: ids)


CASES = [
    Case("deepspeedai/DeepSpeed#8437", "Muon makes each shard orthogonal by itself", ("update-of-a-shard",), muon_of_each_shard,
         ("parameters",)),
    Case("NVIDIA/Megatron-LM#5974", "a warm-up step advances Adam's counter", ("optimizer-counter-ahead",), warm_up_step_counts,
         ("parameters", "optimizer state")),
    Case("ostris/ai-toolkit#1034", "the average of the weights has the wrong sign", ("average-of-weights-differs",),
         average_of_the_wrong_sign, ("averaged weights",)),
    Case("NVIDIA-NeMo/Megatron-Bridge#5840", "LoRA-A's deviation from the shard's fan", ("initial-scale-by-shard",),
         fan_of_the_shard, ("parameters",), step=-1, ranks=4),
]  # fmt: skip
