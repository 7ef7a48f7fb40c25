"""Micro-steps, and uses of a parameter, whose gradient is lost, is not reduced, or is added up in a low precision."""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from launch import Case, dist
from models import CLASS, CLASSES, FEATURES, WIDTH, Mlp, step_ids
from probe import Probe

STEPS, RATE = 4, 0.2


def by_name(model, tensors):
    return {name: tensor for (name, _), tensor in zip(model.named_parameters(), tensors)}


def micro_steps(run, probe, model, ids, micro, after):
    """Each micro-step's backward pass; then `after(k, gradients)`. Gradients are cleared each time. Returns the loss."""
    loss, size = 0.0, len(ids) // micro
    for k in range(micro):
        part = ids[k * size : (k + 1) * size]
        model.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(model(FEATURES[part]), CLASS[part], reduction="none")
            mean = rows.mean() / micro
            mean.backward()
        loss += float(mean)
        probe.losses(part, rows, torch.ones(size, dtype=torch.int64), 1)
        after(k, [p.grad for p in model.parameters()])
    return loss


def trained(run, rows, micro, reduced_of):
    """`reduced_of(k, last, gradients, state)` returns the reduced gradients after the last micro-step."""
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    micro = micro if run.world > 1 else 1
    probe = Probe(run, model, optimizer, global_batch=rows, accumulation=micro)
    for step in probe.steps(STEPS):
        ids = step_ids(step, rows)[run.rank :: run.world]
        probe.begin(step, ids, FEATURES[ids])
        state = {}

        def after(k, gradients):
            state["reduced"] = reduced_of(k, k == micro - 1, gradients, state)

        loss = micro_steps(run, probe, model, ids, micro, after)
        for p, gradient in zip(model.parameters(), state["reduced"]):
            p.grad = gradient.clone()
        probe.loss(loss)
        probe.local(held_by=by_name(model, state["main_grad"]) if "main_grad" in state else None)
        probe.reduced()
        optimizer.step()
        probe.end()


def last_added_after_the_mean(run):
    """The reduction starts at the boundary, before the last micro-step's gradient is in the sum."""
    def reduced_of(k, last, gradients, state):
        total = state.setdefault("sum", [torch.zeros_like(g) for g in gradients])
        if run.wrong and last:
            return [run.mean(t) + g for t, g in zip(total, gradients)]
        state["sum"] = [t + g for t, g in zip(total, gradients)]
        return [run.mean(t) for t in state["sum"]] if last else None

    trained(run, 12, 3, reduced_of)


def accumulator_reset_at_the_boundary(run):
    """ZeRO-2: each micro-step's gradient is reduced and scattered into the rank's part of a flat accumulator."""
    def reduced_of(k, last, gradients, state):
        flat = torch.cat([g.reshape(-1) for g in gradients])
        size = -(-len(flat) // run.world)
        own = torch.empty(size)
        dist.reduce_scatter_tensor(own, F.pad(flat, (0, size * run.world - len(flat))), op=dist.ReduceOp.AVG)
        boundary = last
        if "own" not in state or (run.wrong and boundary):
            state["own"] = torch.zeros(size)
        state["own"] += own
        if not last:
            return None
        whole = torch.cat(run.gather(state["own"]))[: len(flat)]
        return [part.view_as(g) for part, g in zip(whole.split([g.numel() for g in gradients]), gradients)]

    trained(run, 16, 4, reduced_of)


def summed_in_bfloat16(run):
    def reduced_of(k, last, gradients, state):
        dtype = torch.bfloat16 if run.wrong else torch.float32
        total = state.setdefault("main_grad", [torch.zeros_like(g, dtype=dtype) for g in gradients])
        for t, g in zip(total, gradients):
            t.add_(g.to(dtype))
        return [run.mean(t.float()) for t in total] if last else None

    trained(run, 16, 4, reduced_of)


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, 8)
        self.second = nn.Linear(8, 5)

    def forward(self, x):
        return F.normalize(self.second(torch.tanh(self.first(x))), dim=1)


def mini_batches_but_the_last(run):
    """Margin loss over a large batch: its gradient by the embeddings goes back through each mini-batch's own forward."""
    rows, mini = 16, 4
    model = Sentences()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=rows, accumulation=rows // run.world // mini)
    for step in probe.steps(STEPS):
        ids = step_ids(step, rows)[run.rank :: run.world]
        parts = [ids[b : b + mini] for b in range(0, len(ids), mini)]
        probe.begin(step, ids, FEATURES[ids])
        optimizer.zero_grad()
        with torch.no_grad():
            embeddings = torch.cat([model(FEATURES[part]) for part in parts])
        embeddings.requires_grad_()
        same = CLASS[ids][:, None] == CLASS[ids][None]
        scores = embeddings @ embeddings.t()
        positive = scores.masked_fill(~same | torch.eye(len(ids)).bool(), 2.0).min(1).values.clamp(max=1.0)
        negative = scores.masked_fill(same, -2.0).max(1).values
        losses = F.relu(0.5 - positive + negative)
        losses.mean().backward()
        for k, part in enumerate(parts):
            last = k == len(parts) - 1
            with contextlib.nullcontext() if last else ddp.no_sync(), probe.micro_step():
                surrogate = (ddp(FEATURES[part]) * embeddings.grad[k * mini : (k + 1) * mini]).sum()
                if last or not run.wrong:
                    surrogate.backward()
            probe.losses(part, losses[k * mini : (k + 1) * mini], torch.ones(mini, dtype=torch.int64), 1)
        probe.loss(losses.mean())
        probe.update(optimizer)


class Twice(nn.Module):
    """One block used by two checkpointed segments: each recomputes and runs a backward pass of its own."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, 8)
        self.block = nn.Linear(8, 8)
        self.head = nn.Linear(8, CLASSES)

    def segment(self, x):
        return torch.tanh(self.block(x))

    def forward(self, x):
        x = torch.tanh(self.first(x))
        for _ in range(2):
            x = checkpoint(self.segment, x, use_reentrant=True)
        return self.head(x)


def second_use_not_reduced(run):
    model = Twice()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=8)
    done = set()

    def reduce(p):
        if run.wrong and p not in done:
            done.add(p)
            p.grad.copy_(run.mean(p.grad))

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(reduce)
    for step in probe.steps(STEPS):
        ids = step_ids(step, 8)[run.rank :: run.world]
        probe.begin(step, ids, FEATURES[ids])
        done.clear()
        optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(model(FEATURES[ids]), CLASS[ids], reduction="none")
            rows.mean().backward()
        if not run.wrong:
            for p in model.parameters():
                p.grad.copy_(run.mean(p.grad))
        probe.update(optimizer, ids, rows)


REDUCED = ("reduced gradients",)
CASES = [
    Case("deepspeedai/DeepSpeed#7985", "the last micro-step is added after the mean", ("last-micro-step-not-reduced",),
         last_added_after_the_mean, REDUCED),
    Case("allenai/open-instruct#1498", "the boundary resets the accumulator", ("only-last-micro-step",),
         accumulator_reset_at_the_boundary, REDUCED),
    Case("huggingface/sentence-transformers#3862", "backward of the last mini-batch alone", ("only-last-micro-step",),
         mini_batches_but_the_last, ("gradient parts", "local gradients"), reference_ranks=2),
    Case("deepspeedai/DeepSpeed#8224", "a parameter of two subgraphs: one use is not reduced", ("one-use-not-reduced",),
         second_use_not_reduced, REDUCED),
    Case("ISEEKYAN/Megatron-LM#149", "micro-steps are added up in bfloat16", ("accumulated-in-low-precision",),
         summed_in_bfloat16, ("local gradients", "reduced gradients"), reference_ranks=2),
]  # fmt: skip
