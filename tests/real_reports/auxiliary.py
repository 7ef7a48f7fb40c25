"""Auxiliary losses: their scale, and whether they reach the parameters."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from launch import Case
from models import CLASS, CLASSES, FEATURES, POSITIONS, TOKENS, WIDTH, PositionWise, labels_of, step_ids, token_losses
from probe import Placement, Probe

STEPS, RATE, ROWS, EXPERTS, COEFFICIENT = 4, 0.2, 8, 3, 0.1


class WithAuxiliary(torch.autograd.Function):
    """Returns the activation, and gives the auxiliary loss a gradient of `scale` when the activation gets its own."""

    scale = 1.0

    @staticmethod
    def forward(ctx, activation, auxiliary):
        ctx.shape = auxiliary.shape
        return activation.view_as(activation)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, torch.full(ctx.shape, WithAuxiliary.scale)


class Experts(nn.Module):
    """Top-1 routing. `balance_of(probabilities_BE, chosen_BE)` is the balancing loss of the rows."""

    def __init__(self, run, balance_of, drop=False):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, 8) for _ in range(EXPERTS))
        self.head = nn.Linear(8, CLASSES)
        self.run, self.balance_of, self.drop, self.inserted = run, balance_of, drop, True

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        chosen = F.one_hot(probabilities.argmax(-1), EXPERTS).float()
        self.balance = self.balance_of(probabilities, chosen)
        x = x.clone()
        if self.inserted and not self.drop:
            probabilities = WithAuxiliary.apply(probabilities, self.balance)
        elif self.inserted:
            WithAuxiliary.apply(probabilities, self.balance)
        gate = probabilities * chosen
        hidden = sum(gate[:, e : e + 1] * torch.tanh(expert(x)) for e, expert in enumerate(self.experts))
        return self.head(hidden)


def train_experts(run, balance_of, scale, drop=False):
    model = Experts(run, balance_of, drop)
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    probe.initial()
    params = list(model.parameters())
    for step in range(STEPS):
        ids = step_ids(step, ROWS)[run.rank :: run.world]
        probe.begin(step, ids, FEATURES[ids])
        WithAuxiliary.scale = scale
        optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(ddp(FEATURES[ids]), CLASS[ids], reduction="none")
            main = rows.mean()
            with probe.deaf():  # A gradient of 0 into the main loss leaves what the balancing loss adds.
                auxiliary = torch.autograd.grad(main, params, torch.zeros(()), retain_graph=True, allow_unused=True)
                WithAuxiliary.scale = 0.0
                alone = torch.autograd.grad(main, params, retain_graph=True, allow_unused=True)
                WithAuxiliary.scale = scale
            main.backward()
        balance = model.balance.detach()
        probe.losses(ids, rows)
        probe.loss(main.detach() + COEFFICIENT * balance, {"main": (main, 1.0), "balance": (balance, COEFFICIENT)})
        names = [name for name, _ in model.named_parameters()]
        probe.local({"main": dict(zip(names, alone)), "balance": dict(zip(names, auxiliary))})
        probe.reduced()
        optimizer.step()
        probe.end()
    probe.finish()


def balance_of_the_batch(run, over_all=False):
    """E * sum over experts of share * mean probability; shares are those of all ranks' rows.

    `over_all`: the sum of the own rows' probabilities is divided by the rows of all ranks.
    """
    def balance_of(probabilities, chosen):
        rows = len(probabilities) * run.world
        share = run.sum(chosen.sum(0)) / rows
        mean = probabilities.sum(0) / (rows if over_all else len(probabilities))
        return EXPERTS * (share * mean).sum()

    return balance_of


def return_value_dropped(run):
    train_experts(run, balance_of_the_batch(run), COEFFICIENT, drop=run.wrong)


def scale_over_data_ranks(run):
    train_experts(run, balance_of_the_batch(run), COEFFICIENT / run.world if run.wrong else COEFFICIENT)


def sum_over_all_ranks_rows(run):
    train_experts(run, balance_of_the_batch(run, over_all=run.wrong), COEFFICIENT)


def words_ahead_over_context(run):
    """The loss of the second next word (MTP) lacks the factor of the context ranks that the main loss has."""
    model = PositionWise(heads=2)
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    groups = {"context": list(range(run.world))}
    probe = Probe(run, model, optimizer, global_batch=ROWS, groups=groups if run.world > 1 else None)
    probe.initial()
    params, names = list(model.parameters()), [name for name, _ in model.named_parameters()]
    width = POSITIONS // run.world
    places = torch.arange(run.rank * width, (run.rank + 1) * width)
    for step in range(STEPS):
        ids = step_ids(step, ROWS)
        labels = labels_of(ids)
        ahead = torch.where(labels >= 0, TOKENS[ids, 2 : POSITIONS + 2], -100)
        placement = Placement((ROWS, POSITIONS), (0, run.rank * width)) if run.world > 1 else None
        probe.begin(step, ids, None, labels[:, places], placement)
        count = (labels >= 0).sum()
        optimizer.zero_grad()
        with probe.micro_step():
            next_word, second_word = ddp(TOKENS[ids][:, places], places)
            main = token_losses(next_word, labels[:, places]).sum() / count * run.world
            second = token_losses(second_word, ahead[:, places]).sum() / count * (1 if run.wrong else run.world)
            loss = main + COEFFICIENT * second
            with probe.deaf():
                named = {term: dict(zip(names, torch.autograd.grad(value, params, retain_graph=True, allow_unused=True)))
                         for term, value in (("main", main), ("mtp", COEFFICIENT * second))}  # fmt: skip
            loss.backward()
        probe.loss(loss, {"main": (main, 1.0), "mtp": (second, COEFFICIENT)})
        probe.local(named)
        probe.reduced()
        optimizer.step()
        probe.end()
    probe.finish()


CASES = [
    Case("NVIDIA-NeMo/Automodel#1408", "the autograd node's return value is dropped", ("auxiliary-loss-detached",),
         return_value_dropped, ("gradient parts", "local gradients"), ranks=4),
    Case("NVIDIA-NeMo/Automodel#1412", "once attached, the balancing loss is 1/dp too weak", ("auxiliary-loss-over-world",),
         scale_over_data_ranks, ("gradient parts", "local gradients"), ranks=4),
    Case("NVIDIA/Megatron-LM#3769", "global_aux_loss divided by all ranks' rows", ("auxiliary-loss-over-world",),
         sum_over_all_ranks_rows, ("loss",), ranks=4),
    Case("NVIDIA/Megatron-LM#3943", "MTP loss 1/cp", ("auxiliary-loss-over-world",), words_ahead_over_context, ("loss",)),
]  # fmt: skip
