"""Who is reduced, and who is a replica of whom."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from launch import Case, dist
from models import (CLASS, FEATURES, POSITIONS, SERIES, TOKENS, WIDTH, WORDS, Conv, Mlp, labels_of, step_ids,
                    token_losses)  # fmt: skip
from probe import Probe

STEPS, RATE, ROWS = 4, 0.2, 8


def classify(run, probe, forward, optimizer, data=FEATURES, average=None, listen=()):
    """Trains on the classes of `data`. `average(params)`: reduces gradients by hand. `listen`: FSDP2's modules."""
    for step in probe.steps(STEPS):
        ids = step_ids(step, ROWS)[run.rank :: run.world]
        probe.begin(step, ids, data[ids])
        optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(forward(data[ids]), CLASS[ids], reduction="none")
            probe.listen_to_unsharded(*listen)
            rows.mean().backward()
        if average:
            average()
        probe.update(optimizer, ids, rows)


class Lora(nn.Module):
    """A frozen layer with an adapter of rank 2."""

    def __init__(self, base, seed):
        super().__init__()
        one = torch.Generator().manual_seed(seed)
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn((2, base.in_features), generator=one) * 0.5)
        self.b = nn.Parameter(torch.randn((base.out_features, 2), generator=one) * 0.1)

    def forward(self, x):
        a, b = (p.to_local() if isinstance(p, DTensor) else p for p in (self.a, self.b))
        return self.base(x) + x @ a.t() @ b.t()


def attach(model, seed):
    for name in ("first", "second", "head"):
        setattr(model, name, Lora(getattr(model, name), seed))
    return [p for p in model.parameters() if p.requires_grad]


def adapters_after_the_wrapper(run):
    """Each rank seeds its adapters by itself; the wrapper, which would shard and average them, does not know them."""
    model = Mlp()
    if run.wrong:
        fully_shard(model)
    adapters = attach(model, 100 + run.rank)
    if not run.wrong and run.world > 1:
        for p in adapters:
            dist.broadcast(p.data, 0)
        fully_shard(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    listen = [model] if run.world > 1 and not run.wrong else []
    classify(run, Probe(run, model, optimizer, global_batch=ROWS), model, optimizer, listen=listen)


def labelled_replicate(run):
    """The adapters are DTensors made from each rank's own values with the placement Replicate(), and are not averaged."""
    mesh = init_device_mesh("cpu", (run.world,))
    model = Mlp()
    attach(model, 100 + run.rank)
    for layer in (model.first, model.second, model.head):
        for name in ("a", "b"):
            own = getattr(layer, name).data
            whole = DTensor.from_local(own, mesh, [Replicate()], run_check=False) if run.wrong else \
                distribute_tensor(own, mesh, [Replicate()])  # fmt: skip
            setattr(layer, name, nn.Parameter(whole))
    adapters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(adapters, lr=RATE)

    def average():
        for p in adapters:
            p.grad.to_local().copy_(run.mean(p.grad.to_local()))

    classify(run, Probe(run, model, optimizer, global_batch=ROWS), model, optimizer, average=None if run.wrong else average)


class Block(nn.Module):
    """A norm, and a layer of two matrices, over sequences; `width` of the hidden units is split over tensor ranks."""

    def __init__(self, width=8):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH).requires_grad_(False)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, width)
        self.down = nn.Linear(width, WORDS)
        self.part = slice(None)

    def forward(self, tokens):
        return self.down(torch.tanh(self.up(self.norm(self.words(tokens)[:, self.part]))))


def replicas_of_tensor_ranks(run):
    """The norm's weights are drawn on each tensor rank with the rank's own seed, and only labelled as replicated."""
    model = Block()
    torch.manual_seed(50 + (run.rank if run.wrong else 0))
    nn.init.normal_(model.norm.weight, 1.0, 0.2)
    if run.world > 1:
        mesh = init_device_mesh("cpu", (run.world,), mesh_dim_names=("tensor",))
        parallelize_module(model, mesh, {
            "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Replicate()),
        })  # fmt: skip
        size = POSITIONS // run.world
        model.part = slice(run.rank * size, (run.rank + 1) * size)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=RATE, foreach=False)
    tensor = dict(groups={"tensor": list(range(run.world))}, replicas=[[r] for r in range(run.world)])
    probe = Probe(run, model, optimizer, global_batch=ROWS, **(tensor if run.world > 1 else {}))
    for step in probe.steps(STEPS):
        ids = step_ids(step, ROWS)
        labels = labels_of(ids)
        probe.begin(step, ids, TOKENS[ids, :POSITIONS], labels)
        optimizer.zero_grad()
        with probe.micro_step():
            rows = token_losses(model(TOKENS[ids, :POSITIONS]), labels).sum(1)
            loss = rows.sum() / (labels >= 0).sum()
            loss.backward()
        for p in params:
            if isinstance(p.grad, DTensor) and any(kind.is_partial() for kind in p.grad.placements):
                p.grad = p.grad.redistribute(placements=p.placements)
        probe.losses(ids, rows, (labels >= 0).sum(1), POSITIONS)
        probe.loss(loss)
        probe.update(optimizer)


def loss_on_the_bare_module(run):
    model = Conv()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    classify(run, probe, ddp.module if run.wrong else ddp, optimizer, SERIES)


class Tied(nn.Module):
    def __init__(self, width=9):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.up = nn.Linear(width, width)
        self.head = nn.Linear(width, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.up(self.words(tokens))))


def last_rows_never_move(run):
    """The update is made on equal, padded parts; where a part had to be padded, the result is not copied back."""
    model = Tied()
    if run.world > 1:
        fully_shard(model)
    parts = []
    for p in model.parameters():
        own = p.to_local() if isinstance(p, DTensor) else p.data
        rows = -(-p.shape[0] // run.world)
        parts.append((p, own, nn.Parameter(F.pad(own.detach(), [0, 0] * (own.dim() - 1) + [0, rows - own.shape[0]]))))
    optimizer = torch.optim.SGD([padded for _, _, padded in parts], lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    for step in probe.steps(STEPS):
        ids = step_ids(step, ROWS)[run.rank :: run.world]
        labels = labels_of(ids)
        probe.begin(step, ids, TOKENS[ids, :POSITIONS], labels)
        model.zero_grad()
        count = run.sum((labels >= 0).sum())
        with probe.micro_step():
            rows = token_losses(model(TOKENS[ids, :POSITIONS]), labels).sum(1)
            if run.world > 1:
                probe.listen_to_unsharded(model)
            loss = rows.sum() * run.world / count
            loss.backward()
        probe.losses(ids, rows, (labels >= 0).sum(1), POSITIONS)
        probe.loss(loss)
        probe.local()
        probe.reduced()
        for p, own, padded in parts:
            gradient = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
            padded.grad = F.pad(gradient, [0, 0] * (own.dim() - 1) + [0, len(padded) - len(own)])
        optimizer.step()
        with torch.no_grad():
            for p, own, padded in parts:
                if not run.wrong or len(own) == len(padded):
                    own.copy_(padded[: len(own)])
        probe.end()


def replica_groups_begin_apart(run):
    """HSDP: two replicas of two shards; a replica's ranks share a seed, the replicas do not."""
    model = Mlp()
    torch.manual_seed(30 + (run.rank // 2 if run.wrong else 0))
    for layer in (model.first, model.second, model.head):
        layer.reset_parameters()
    if run.world > 1:
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    groups = {"shards 0": [0, 1], "shards 1": [2, 3], "replicas 0": [0, 2], "replicas 1": [1, 3]} if run.world > 1 else None
    probe = Probe(run, model, optimizer, global_batch=ROWS, groups=groups)
    classify(run, probe, model, optimizer, listen=[model] if run.world > 1 else [])


CASES = [
    Case("huggingface/transformers#48792", "adapters attached after fully_shard", ("initial-weights-differ",),
         adapters_after_the_wrapper, ("parameters",), step=-1),
    Case("hao-ai-lab/FastVideo#1666", "labelled Replicate(), each rank's own values", ("labelled-replicated-but-differs",),
         labelled_replicate, ("parameters",), step=-1),
    Case("NVIDIA-NeMo/Automodel#3822", "tensor ranks' replicas differ", ("labelled-replicated-but-differs",),
         replicas_of_tensor_ranks, ("parameters",), step=-1),
    Case("OpenTSLM/OpenTSLM#49", "the loss is computed on model.module", ("gradient-not-reduced",), loss_on_the_bare_module,
         ("reduced gradients",), reference_ranks=2),
    Case("pytorch/pytorch#176076", "the last rank's rows of a tied, unevenly split weight never move", ("shard-not-updated",),
         last_rows_never_move, ("parameters",), ranks=3, rank=2),
    Case("allenai/OLMo-core#319", "HSDP's replica groups begin apart", ("initial-weights-differ",), replica_groups_begin_apart,
         ("parameters",), ranks=4, step=-1),
]  # fmt: skip
