"""Backends whose mean is another operation, schedules of other points, and a rollout's old weights."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from launch import Case, dist
from models import CLASS, FEATURES, SERIES, WIDTH, Conv, Mlp, step_ids
from probe import Probe
from replicas import classify as train

STEPS, RATE, ROWS = 4, 0.2, 8


def classify(run, model, forward, data=FEATURES, listen=(), average=None):
    """Trains on the classes of `data`. `average(model, probe)`: reduces gradients by hand. `listen`: FSDP2's modules."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    model.probe = probe
    train(run, probe, forward, optimizer, data, average and (lambda: average(model, probe)), listen)


class ReduceScatter:
    """FSDP2's reduce-scatter, handed to a backend; `drops_op`: the backend does not pass the operation on."""

    def __init__(self, model, drops_op):
        self.model, self.drops_op = model, drops_op

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        given = input_tensor.clone()
        work = dist.reduce_scatter_tensor(output_tensor, input_tensor, dist.ReduceOp.SUM if self.drops_op else op, group=group)
        self.model.probe.collective("reduce_scatter", "world", "gradients", given, output_tensor, "mean")
        return work


def reduce_scatter_drops_its_operation(run):
    model = Conv()
    fully_shard(model)
    model.set_custom_reduce_scatter(ReduceScatter(model, run.wrong))
    classify(run, model, model, SERIES, [model])


def mean_is_sum_from_four_ranks_on(run):
    """A flat buffer, reduced and scattered directly from 4 ranks on, in which case the mean is left a sum."""
    def average(model, probe):
        params = list(model.parameters())
        flat = torch.cat([p.grad.reshape(-1) for p in params])
        size = -(-len(flat) // run.world)
        given, own = F.pad(flat, (0, size * run.world - len(flat))), torch.empty(size)
        direct = run.wrong and run.world >= 4
        dist.reduce_scatter_tensor(own, given.clone(), dist.ReduceOp.SUM if direct else dist.ReduceOp.AVG)
        if run.world > 1:
            probe.collective("reduce_scatter", "world", "gradients", given, own, "mean")
        for p, part in zip(params, torch.cat(run.gather(own))[: len(flat)].split([p.numel() for p in params])):
            p.grad = part.view_as(p).clone()

    model = Mlp()
    classify(run, model, model, average=average)


def mean_divides_by_the_elements(run):
    def average(model, probe):
        for name, p in model.named_parameters():
            given = p.grad.clone()
            dist.all_reduce(p.grad)
            p.grad /= p.numel() if run.wrong else run.world
            if run.world > 1:
                probe.collective("all_reduce", "gradients", name, given, p.grad, "mean")

    model = Mlp()
    classify(run, model, model, average=average)


class Velocity(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(WIDTH + 1, 8)
        self.out = nn.Linear(8, WIDTH)

    def forward(self, x, sigma):
        return self.out(torch.tanh(self.hidden(torch.cat([x, sigma.expand(len(x), 1)], 1))))


def points_of_the_schedule(run):
    """The rollout has 15 noise levels; its replay in the update has 14."""
    points = 14 if run.wrong else 15
    sigmas = torch.linspace(1, 0, points, dtype=torch.float64)
    model = Velocity()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    noise = torch.randn((len(FEATURES), WIDTH), generator=torch.Generator().manual_seed(12))
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    for step in probe.steps(STEPS):
        ids = step_ids(step, ROWS)[run.rank :: run.world]
        probe.begin(step, ids, FEATURES[ids])
        probe.writer.tensor("control", "schedule/sigmas", sigmas, alike=True)
        optimizer.zero_grad()
        with probe.micro_step():
            x, rows = FEATURES[ids], 0.0
            level = sigmas[(step * 5 + 3) % 14].float()
            rows = ((ddp((1 - level) * x + level * noise[ids], level) - (noise[ids] - x)) ** 2).mean(1)
            rows.mean().backward()
        probe.update(optimizer, ids, rows)


def rollout_of_old_weights(run):
    """The generator gets the weights before step 0, and never again."""
    model = Mlp()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    generator = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    probe = Probe(run, model, optimizer, global_batch=16)
    for step in probe.steps(STEPS):
        ids = step_ids(step, 16)[run.rank :: run.world]
        if step == 0 or not run.wrong:
            generator.load_state_dict(model.state_dict())
        with torch.no_grad():
            scores = generator(FEATURES[ids])
            uniform = torch.stack([torch.rand(scores.shape[1], generator=torch.Generator().manual_seed(1000 * step + i))
                                   for i in ids])  # fmt: skip
            actions = (scores - (-uniform.log()).log()).argmax(1)
        probe.begin(step, ids, torch.cat([FEATURES[ids], actions[:, None].float()], 1))
        probe.writer.tensor("energies", "energies", scores, ids=ids)
        probe.writer.tensor("energies", "columns", torch.arange(scores.shape[1]))
        reward = (actions == CLASS[ids]).float()
        optimizer.zero_grad()
        with probe.micro_step():
            log_probability = -F.cross_entropy(ddp(FEATURES[ids]), actions, reduction="none")
            rows = -(reward - 0.3) * log_probability
            rows.mean().backward()
        probe.update(optimizer, ids, rows)


REDUCED = ("collective", "reduced gradients")
# A mean that is left a sum is both another operation than the mean and a sum that is not divided.
SUM = ("wrong-reduction-op", "gradient-sum-not-mean")
CASES = [
    Case("pytorch/pytorch#162338", "Gloo's reduce-scatter drops AVG", SUM, reduce_scatter_drops_its_operation, REDUCED,
         reference_ranks=2),
    Case("ROCm/rocm-systems#10322", "direct reduce-scatter: the mean is a sum from 4 nodes on", SUM,
         mean_is_sum_from_four_ranks_on, REDUCED, ranks=4),
    Case("meta-pytorch/torchcomms#287", "Gloo's AVG divides by numel()", ("divided-by-wrong-world", "wrong-reduction-op"),
         mean_divides_by_the_elements, REDUCED),
    Case("verl-project/verl-omni#280", "14 points of a schedule against 15", ("schedules-differ",), points_of_the_schedule,
         ("control",)),
    Case("pytorch/torchtitan#2402", "the generator has the weights of step 0", ("stale-rollout-policy",), rollout_of_old_weights,
         ("inputs", "energies"), step=1),
]  # fmt: skip
