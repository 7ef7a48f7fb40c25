"""Losses divided by the wrong number. DDP takes the mean over ranks: a rank's loss is W times its share of the whole batch's."""

import contextlib

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from launch import Case, dist
from models import (CLASS, FEATURES, POSITIONS, SAMPLES, TOKENS, Mlp, PositionWise, Transformer, labels_of, step_ids,
                    token_losses)  # fmt: skip
from probe import Placement, Probe

STEPS, RATE = 4, 0.2


def wrapped(run, model):
    return DistributedDataParallel(model) if run.world > 1 else model


def without_sync(model, last):
    return contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()


def train_tokens(run, rows, micro, loss_of, row_losses=None, by_row=False, **declared):
    """Trains the transformer, `rows` a step on all ranks, in `micro` micro-steps a rank if there are several ranks.

    `loss_of(losses_BT, labels_BT, context)` is what a micro-step differentiates; context: counts that its mistake may mix up.
    `by_row`: each row counts once, by the mean of its tokens.
    """
    model = Transformer()
    ddp = wrapped(run, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    micro = micro if run.world > 1 else 1
    probe = Probe(run, model, optimizer, global_batch=rows, accumulation=micro, **declared)
    for step in probe.steps(STEPS):
        ids = step_ids(step, rows)[run.rank :: run.world]
        tokens, labels = TOKENS[ids, :POSITIONS], labels_of(ids)
        probe.begin(step, ids, tokens, labels)
        own = (labels >= 0).sum()
        whole = run.sum(own)
        if run.world > 1:
            probe.collective("all_reduce", "data", "tokens", own, whole, "sum")
        optimizer.zero_grad()
        loss, size = 0.0, len(ids) // micro
        for k in range(micro):
            part = slice(k * size, (k + 1) * size)
            with without_sync(ddp, k == micro - 1), probe.micro_step():
                logits = ddp(tokens[part])
                losses = row_losses(logits, labels[part], ids[part]) if row_losses else token_losses(logits, labels[part])
                mean = loss_of(losses, labels[part], dict(run=run, step=step, rows=len(ids), own=own, whole=whole))
                mean.backward()
            loss += float(mean)
            counts = (labels[part] >= 0).sum(1)
            if by_row:
                probe.losses(ids[part], losses.sum(1) / counts, torch.ones_like(counts), 1)
            else:
                probe.losses(ids[part], losses.sum(1), counts, POSITIONS)
        probe.loss(loss)
        probe.local()
        probe.reduced()
        probe.norm(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        optimizer.step()
        probe.end()


def token_mean_by_micro_step(run):
    def loss_of(losses, labels, context):
        if run.wrong:
            return losses.sum() / (labels >= 0).sum() * (len(labels) / context["rows"])
        return losses.sum() * run.world / context["whole"]

    train_tokens(run, 16, 4, loss_of)


def distillation_by_micro_step(run):
    teacher = Transformer()
    torch.manual_seed(2)

    def divergence(logits, labels, ids):
        with torch.no_grad():
            target = F.log_softmax(teacher(TOKENS[ids, :POSITIONS]), -1)
        rows = F.kl_div(F.log_softmax(logits, -1), target, reduction="none", log_target=True).sum(-1)
        return rows * (labels >= 0)

    def loss_of(losses, labels, context):
        info = {} if run.wrong else {"tokens": context["whole"], "ranks": run.world}
        if not info:  # The mean of the micro-step's own tokens, and of the micro-steps.
            return losses.sum() / (labels >= 0).sum() / (context["rows"] // len(labels))
        return losses.sum() * info["ranks"] / info["tokens"]

    train_tokens(run, 8, 2, loss_of, divergence)


def mean_of_each_micro_step(run):
    """The loss of a micro-step is the mean of its rows' geometric means, past the helper that knows the whole batch."""
    def loss_of(losses, labels, context):
        rows = losses.sum(1) / (labels >= 0).sum(1)
        return torch.mean(rows) if run.wrong else rows.sum() * run.world / (context["rows"] * run.world)

    train_tokens(run, 16, 4, loss_of, by_row=True)


def tokens_of_another_window(run):
    """Steps_per_generation is 4 micro-steps, the accumulation 2: the tokens are those of the whole generation."""
    rows, accumulation, generation = 16, 2, 4

    def loss_of(losses, labels, context):
        tokens = context["whole"]
        if run.wrong:
            first = context["step"] * accumulation // generation * generation // accumulation
            window = [i for s in range(first, first + generation // accumulation) for i in step_ids(s, rows)]
            tokens = (labels_of(window) >= 0).sum()
        return losses.sum() / (tokens / run.world)

    train_tokens(run, rows, accumulation, loss_of)


def all_tokens_on_each_rank(run):
    train_tokens(run, 8, 1, lambda losses, labels, c: losses.sum() / c["whole"] * (1 if run.wrong else run.world))


def factor_left_on(run):
    """Tokens are now counted over all ranks, loss over the ranks' mean count; the factor W of before is still there."""
    def loss_of(losses, labels, context):
        loss = losses.sum() / (context["whole"] / run.world)
        return loss * run.world if run.wrong else loss

    train_tokens(run, 8, 1, loss_of)


def no_scaling_without_accumulation(run):
    def loss_of(losses, labels, context):
        if run.wrong and len(labels) == context["rows"]:
            return losses.sum() / context["own"]
        return losses.sum() * run.world / context["whole"]

    train_tokens(run, 8, 1, loss_of)


def tokens_over_data_ranks_only(run):
    """Two data ranks of two context ranks each; a context rank holds every second position."""
    cp = 2 if run.world > 1 else 1
    dp = run.world // cp
    d, c = divmod(run.rank, cp)
    across = [dist.new_group([k * cp + j for k in range(dp)]) for j in range(cp)][c]
    model = PositionWise()
    ddp = wrapped(run, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    groups = {f"context {k}": [k * cp + j for j in range(cp)] for k in range(dp)}
    groups |= {f"data {j}": [k * cp + j for k in range(dp)] for j in range(cp)}
    probe = Probe(run, model, optimizer, global_batch=8, groups=groups if run.world > 1 else None)
    for step in probe.steps(STEPS):
        ids = step_ids(step, 8)[d::dp]
        width = POSITIONS // cp
        places = torch.arange(c * width, (c + 1) * width)
        # Packed rows: each position counts but for the first and the last of each half.
        labels = TOKENS[ids, 1 : POSITIONS + 1].clone()
        labels[:, :: POSITIONS // 2] = -100
        labels, tokens = labels[:, places], TOKENS[ids][:, places]
        placement = Placement((len(ids), POSITIONS), (0, c * width)) if cp > 1 else None
        probe.begin(step, ids, None, labels, placement)
        own = (labels >= 0).sum()
        count = run.sum(own, across if run.wrong else None)
        if run.world > 1:
            probe.collective("all_reduce", f"data {c}" if run.wrong else "world", "tokens", own, count, "sum")
        optimizer.zero_grad()
        with probe.micro_step():
            loss = token_losses(ddp(tokens, places)[0], labels).sum() / count * run.world
            loss.backward()
        probe.loss(loss)
        probe.update(optimizer)


def scaled_twice_for_ddp(run):
    """The loss has the factor W already when a hook multiplies the gradients by W again, to undo DDP's mean."""
    model = Mlp()
    ddp = wrapped(run, model)
    if run.wrong:
        for p in model.parameters():
            p.register_hook(lambda gradient: gradient * run.world)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=16)
    for step in probe.steps(STEPS):
        ids = step_ids(step, 16)[run.rank :: run.world]
        probe.begin(step, ids, FEATURES[ids])
        optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(ddp(FEATURES[ids]), CLASS[ids], reduction="none")
            loss = rows.sum() / 16 * run.world
            loss.backward()
        probe.gradients(ids, rows, loss)
        probe.norm(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        optimizer.step()
        probe.end()


def accumulated_without_mesh(run):
    """Accumulates as many micro-steps as the global batch needs on this many data ranks: 1, since there is no mesh."""
    model = Mlp()
    ddp = wrapped(run, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data_ranks = 1 if run.wrong else run.world
    micro = 8 // data_ranks // 2
    probe = Probe(run, model, optimizer, global_batch=8)
    probe.initial()
    taken = 0
    for step in range(STEPS):
        ids = step_ids(0, SAMPLES)[taken * run.world + run.rank :: run.world][: 2 * micro]
        taken = (taken + 2 * micro) % (SAMPLES // run.world)
        probe.begin(step, ids, FEATURES[ids])
        optimizer.zero_grad()
        loss = 0.0
        for k in range(micro):
            part = ids[2 * k : 2 * k + 2]
            with without_sync(ddp, k == micro - 1), probe.micro_step():
                rows = F.cross_entropy(ddp(FEATURES[part]), CLASS[part], reduction="none")
                mean = rows.mean() / micro
                mean.backward()
            probe.losses(part, rows)
            loss += float(mean)
        probe.loss(loss)
        probe.update(optimizer)
    probe.finish()


class Indexed(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return i, FEATURES[i], CLASS[i]


def batch_of_each_rank(run):
    """`--batch-size` is passed to each rank's loader as it is."""
    model = Mlp()
    ddp = wrapped(run, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    data = Indexed()
    sampler = DistributedSampler(data, run.world, run.rank, seed=5)
    loader = DataLoader(data, batch_size=8 if run.wrong else 8 // run.world, sampler=sampler)
    probe = Probe(run, model, optimizer, global_batch=8)
    probe.initial()
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for ids, features, target in loader:
            if step == STEPS:
                break
            ids = ids.tolist()
            probe.begin(step, ids, features)
            optimizer.zero_grad()
            with probe.micro_step():
                rows = F.cross_entropy(ddp(features), target, reduction="none")
                loss = rows.mean()
                loss.backward()
            probe.update(optimizer, ids, rows, loss)
            step += 1
    probe.finish()


LOSS = ("loss",)
CASES = [
    Case("verl-project/verl#5625", "token mean of each micro-step, weighted by its rows", ("micro-steps-weighted-alike",),
         token_mean_by_micro_step, LOSS),
    Case("verl-project/verl#7200", "distillation loss normalised in each micro-step", ("micro-steps-weighted-alike",),
         distillation_by_micro_step, LOSS),
    # As the thread and verl#7913 measure it: "eight local means instead of one minibatch mean".
    Case("verl-project/verl#5614", "torch.mean of each micro-step, added up", ("accumulation-not-scaled",),
         mean_of_each_micro_step, LOSS),
    Case("verl-project/verl#5993", "tokens summed over data ranks, not over context ranks", ("counted-over-wrong-group",),
         tokens_over_data_ranks_only, LOSS, ranks=4),
    Case("huggingface/trl#6024", "tokens of a generation, micro-steps of an update", ("constant-factor",),
         tokens_of_another_window, LOSS, ranks=4),
    Case("huggingface/transformers#37474", "the tokens of all ranks divide each rank's loss", ("loss-over-world",),
         all_tokens_on_each_rank, LOSS, ranks=4),
    Case("huggingface/trl#6478", "a second factor left on", ("loss-times-world",), factor_left_on, LOSS, ranks=4),
    Case("meta-pytorch/torchtune#2980", "no scaling at accumulation 1", ("mean-of-means",), no_scaling_without_accumulation, LOSS,
         ranks=4),
    Case("pytorch/torchtitan#2318", "DDP's gradient norm is W times FSDP's", ("gradient-times-world",), scaled_twice_for_ddp,
         ("local gradients",), ranks=4),
    Case("NVIDIA-NeMo/Automodel#1210", "data size 1 without a mesh: accumulation W times too long",
         ("global-batch-times-world",), accumulated_without_mesh, ("samples",), ranks=4),
    Case("official-stockfish/nnue-pytorch#390", "the batch size is that of a rank", ("global-batch-times-world",),
         batch_of_each_rank, ("samples",)),
]  # fmt: skip
