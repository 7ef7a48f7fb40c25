"""Random numbers drawn again or alike, updates left out, labels, and candidates of other ranks."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from launch import Case
from models import CLASS, FEATURES, POSITIONS, TOKENS, WIDTH, Mlp, PositionWise, step_ids, token_losses
from probe import Placement, Probe, signed, tensor_hash

STEPS, RATE, ROWS = 4, 0.2, 8


def train_with_dropout(run, model):
    """Each rank's generator has its own seed."""
    ddp = DistributedDataParallel(model)
    torch.manual_seed(40 + run.rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=ROWS, streams={"process/torch": "rank"})
    for step in probe.steps(STEPS):
        ids = step_ids(step, ROWS)[run.rank :: run.world]
        probe.begin(step, ids, FEATURES[ids])
        state = torch.get_rng_state()
        optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(ddp(FEATURES[ids]), CLASS[ids], reduction="none")
            rows.mean().backward()
        probe.stream("process/torch", state, torch.get_rng_state())
        probe.update(optimizer, ids, rows)


class Checkpointed(Mlp):
    """Recomputes its hidden layers in the backward pass; `preserve`: with the generator's state of the forward pass."""

    def __init__(self, preserve):
        super().__init__(dropout=0.3)
        self.preserve = preserve

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False, preserve_rng_state=self.preserve)


def without_checkpoints(run):
    train_with_dropout(run, Mlp(dropout=0.3))


def masks_of_checkpoints(run):
    train_with_dropout(run, Checkpointed(preserve=not run.wrong))


class Recomputed(torch.autograd.Function):
    """What a compiler makes of tanh and dropout under a memory budget: it saves the input and computes the rest again."""

    @staticmethod
    def forward(ctx, x, again):
        mask = torch.rand_like(x) > 0.3
        ctx.again = again
        ctx.save_for_backward(x, mask)
        return torch.tanh(x) * mask / 0.7

    @staticmethod
    def backward(ctx, gradient):
        x, mask = ctx.saved_tensors
        if ctx.again:
            mask = torch.rand_like(x) > 0.3
        return gradient * mask / 0.7 * (1 - torch.tanh(x) ** 2), None


class Budgeted(Mlp):
    def __init__(self, again):
        super().__init__()
        self.again = again

    def forward(self, x):
        return self.head(torch.tanh(self.second(Recomputed.apply(self.first(x), self.again))))


def masks_under_a_memory_budget(run):
    train_with_dropout(run, Budgeted(again=run.wrong))


class Augmented(Dataset):
    """Features with noise from Python's generator, beside the state that it was drawn from."""

    def __len__(self):
        return 16

    def __getitem__(self, i):
        state = tensor_hash(torch.tensor(random.getstate()[1]))
        noise = torch.tensor([random.random() for _ in range(WIDTH)])
        worker = torch.utils.data.get_worker_info().id
        return i, FEATURES[i] + 0.3 * (noise - 0.5), CLASS[i], worker, torch.tensor(signed(state))


def train_augmented(run, seed_of):
    """`seed_of(epoch, worker)`: of Python's generator in a worker."""
    model = Mlp()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    data = Augmented()
    sampler = DistributedSampler(data, run.world, run.rank, seed=3)
    streams = {f"worker {k}/python": "rank" for k in range(2)}
    probe = Probe(run, model, optimizer, global_batch=ROWS, streams=streams)
    probe.initial()
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        loader = DataLoader(data, ROWS // run.world, sampler=sampler, num_workers=2,
                            worker_init_fn=lambda worker: random.seed(seed_of(epoch, worker)))  # fmt: skip
        for ids, features, target, workers, states in loader:
            ids = ids.tolist()
            probe.begin(step, ids, features)
            probe.writer.random(f"worker {int(workers[0])}/python", int(states[0]) % (1 << 64), WIDTH * len(ids))
            optimizer.zero_grad()
            with probe.micro_step():
                rows = F.cross_entropy(ddp(features), target, reduction="none")
                rows.mean().backward()
            probe.update(optimizer, ids, rows)
            step += 1
    probe.finish()


def workers_alike_on_ranks(run):
    train_augmented(run, lambda epoch, worker: 1000 * epoch + 10 * (0 if run.wrong else run.rank) + worker)


def workers_alike_in_epochs(run):
    train_augmented(run, lambda epoch, worker: 1000 * (0 if run.wrong else epoch) + 10 * run.rank + worker)


def padded_at_the_end_of_an_epoch(run):
    """DistributedSampler fills the last batch of an epoch up with samples of its beginning."""
    model = Mlp()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    data = range(14)
    sampler = DistributedSampler(data, run.world, run.rank, seed=4)
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    probe.initial()
    size, step = ROWS // run.world, 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        own = list(sampler)
        if not run.wrong:
            own = own[: len(range(run.rank, len(data), run.world))]
        for begin in range(0, -(-len(data) // run.world), size):
            ids = own[begin : begin + size]
            probe.begin(step, ids, FEATURES[ids])
            whole = run.sum(torch.tensor(len(ids)))
            optimizer.zero_grad()
            with probe.micro_step():
                rows = F.cross_entropy(ddp(FEATURES[ids]), CLASS[ids], reduction="none")
                loss = rows.sum() * run.world / whole
                loss.backward()
            probe.update(optimizer, ids, rows, loss)
            step += 1
    probe.finish()


def train_skipping(run, decide):
    """`decide(loss)`: whether this rank leaves out the update. Sample 11, of step 1 and of the last rank, has a NaN."""
    data = FEATURES.clone()
    data[11, 2] = float("nan")
    model = Mlp()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=ROWS)
    for step in probe.steps(STEPS):
        ids = step_ids(step, ROWS)[run.rank :: run.world]
        probe.begin(step, ids, data[ids])
        optimizer.zero_grad()
        with probe.micro_step():
            rows = F.cross_entropy(ddp(data[ids]), CLASS[ids], reduction="none")
            loss = rows.mean()
            loss.backward()
        skip = decide(loss.detach()) if run.wrong else bool(run.sum((~torch.isfinite(loss)).float()))
        probe.writer.skipped(skip)
        probe.gradients(ids, rows, loss)
        if not skip:
            optimizer.step()
        else:
            probe.updates -= 1
        probe.end()


def skip_by_the_first_rank(run):
    def decide(loss):
        if run.rank != 0:
            loss = torch.zeros_like(loss)
        return not bool(torch.isfinite(run.sum(loss)))

    train_skipping(run, decide)


def skip_by_the_own_loss(run):
    train_skipping(run, lambda loss: not bool(torch.isfinite(loss)))


def labels_rolled_after_the_split(run):
    """Context ranks: each has a part of every row's positions."""
    model = PositionWise()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    groups = {"context": list(range(run.world))} if run.world > 1 else None
    probe = Probe(run, model, optimizer, global_batch=ROWS, groups=groups)
    probe.initial()
    width = POSITIONS // run.world
    places = torch.arange(run.rank * width, (run.rank + 1) * width)
    for step in range(STEPS):
        ids = step_ids(step, ROWS)
        tokens = TOKENS[ids, :POSITIONS]
        labels = tokens[:, places].roll(-1, 1) if run.wrong else tokens.roll(-1, 1)[:, places]
        placement = Placement((ROWS, POSITIONS), (0, run.rank * width)) if run.world > 1 else None
        probe.begin(step, ids, None, labels, placement)
        optimizer.zero_grad()
        with probe.micro_step():
            loss = token_losses(ddp(tokens[:, places], places)[0], labels).mean()
            loss.backward()
        probe.loss(loss)
        probe.update(optimizer)
    probe.finish()


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(WIDTH, 5)
        self.text = nn.Linear(WIDTH, 5)
        self.log_scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images, *texts):
        return [F.normalize(self.image(images), dim=1)] + [F.normalize(self.text(t), dim=1) for t in texts]


ROLES = [{"prefix": "image", "role": "row encoder"}, {"prefix": "text", "role": "candidate encoder"},
         {"prefix": "log_scale", "role": "temperature"}]  # fmt: skip
TEXTS = torch.randn((len(FEATURES), WIDTH), generator=torch.Generator().manual_seed(8)) + 0.5 * FEATURES
HARD = torch.randn((len(FEATURES), WIDTH), generator=torch.Generator().manual_seed(9)) + 0.2 * FEATURES


def train_pairs(run, texts_of, candidates_of):
    """`texts_of(ids)`: what the text encoder sees. `candidates_of(ids, *encoded)`: candidates, their ids, and the targets."""
    model = Pairs()
    ddp = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    probe = Probe(run, model, optimizer, global_batch=ROWS, parameters=ROLES)
    for step in probe.steps(STEPS):
        ids = step_ids(step, ROWS)
        ids = ids[run.rank * ROWS // run.world : (run.rank + 1) * ROWS // run.world]
        probe.begin(step, ids, FEATURES[ids])
        optimizer.zero_grad()
        with probe.micro_step():
            encoded = ddp(FEATURES[ids], *texts_of(ids))
            candidates, columns, target = candidates_of(ids, *encoded)
            scores = encoded[0] @ candidates.t()
            rows = F.cross_entropy(scores * model.log_scale.exp(), target, reduction="none")
            rows.mean().backward()
        probe.writer.tensor("energies", "energies", scores, ids=ids)
        probe.writer.tensor("energies", "columns", torch.tensor(columns))
        probe.losses(ids, rows)
        probe.loss(rows.mean())
        probe.writer.scalar("loss", "row_weight", 1 / len(ids))
        probe.writer.scalar("loss", "temperature", float((-model.log_scale).exp()))
        probe.update(optimizer)


def ids_of_all(run, ids):
    return [int(i) for part in run.gather(torch.tensor(ids)) for i in part]


def gather_without_its_result(run):
    def candidates_of(ids, images, texts):
        if run.wrong:
            all_gather(texts)
            return texts, ids, torch.arange(len(ids))
        gathered = torch.cat(all_gather(texts)) if run.world > 1 else texts
        return gathered, ids_of_all(run, ids), torch.arange(len(ids)) + run.rank * len(ids)

    train_pairs(run, lambda ids: [TEXTS[ids]], candidates_of)


def hard_negatives_between(run):
    """Positives of all ranks should come first; gathered rank by rank, each rank's hard negatives lie between."""
    def candidates_of(ids, images, positives, negatives):
        everyone = ids_of_all(run, ids)
        columns = everyone + [1000 + i for i in everyone]
        target = torch.arange(len(ids)) + run.rank * len(ids)
        if run.world == 1:
            return torch.cat([positives, negatives]), columns, target
        if run.wrong:
            return torch.cat(all_gather(torch.cat([positives, negatives]))), columns, target
        return torch.cat(list(all_gather(positives)) + list(all_gather(negatives))), columns, target

    train_pairs(run, lambda ids: [TEXTS[ids], HARD[ids]], candidates_of)


CASES = [
    Case("allenai/OLMo-core#828", "recomputation draws new dropout masks", ("masks-drawn-again",), masks_of_checkpoints,
         ("random",), reference_ranks=2, reference=without_checkpoints),
    Case("pytorch/pytorch#190717", "a memory budget recomputes random numbers", ("masks-drawn-again",),
         masks_under_a_memory_budget, ("random",), reference_ranks=2),
    Case("huggingface/transformers#37932", "loader workers have the same seeds on all ranks", ("same-stream-on-all-ranks",),
         workers_alike_on_ranks, ("random", "inputs"), rank=1, reference_ranks=2),
    Case("Lightning-AI/pytorch-lightning#20412", "loader workers begin each epoch with the same seeds",
         ("stream-not-advanced",), workers_alike_in_epochs, ("random", "inputs"), step=2, reference_ranks=2),
    Case("huggingface/transformers#11254", "the last batch of an epoch is filled up", ("padding-at-epoch-end",),
         padded_at_the_end_of_an_epoch, ("samples",), ranks=4, step=1),
    Case("ecmwf/WeatherGenerator#2724", "rank 0's loss decides, rank 3's is NaN", ("skip-decided-alone",),
         skip_by_the_first_rank, ("control",), ranks=4, step=1),
    Case("ecmwf/WeatherGenerator#2724", "a variant: each rank's own loss decides", ("skip-decided-alone",), skip_by_the_own_loss,
         ("control",), ranks=4, step=1),
    Case("verl-project/verl#4250", "labels are shifted after the split", ("labels-shifted-at-shard-edge",),
         labels_rolled_after_the_split, ("inputs",)),
    Case("galilai-group/stable-pretraining#409", "the gather's result is dropped", ("local-negatives", "label-offset"),
         gather_without_its_result, ("energies",)),
    Case("huggingface/sentence-transformers#3453", "PNPN where the targets are those of PPNN", ("candidates-misordered",),
         hard_negatives_between, ("energies",)),
]  # fmt: skip
