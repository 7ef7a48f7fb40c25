"""A Python twin of lockstep's trainers, as a user would write it with DistributedDataParallel, small enough to run by the dozen.

`energy` contrasts each row with the candidates of all ranks (InfoNCE, gathered with gradient); `classify` is the mean of
cross-entropy over the tokens of rows of unequal length, with batch statistics of all ranks where `norm` is set. One
process with all rows and V ranks with their shares train the same to rounding. A `Fault` overrides what goes wrong.
"""

import dataclasses
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

FEATURES, HIDDEN, WIDTH, TOKENS, CLASSES = 8, 16, 8, 6, 11


@dataclasses.dataclass(frozen=True)
class Settings:
    """One run; `order` permutes the rows of each batch (a repeat of the reference)."""

    trainer: str = "energy"
    world: int = 1
    batch: int = 24
    samples: int = 96
    steps: int = 10
    seed: int = 5
    accumulation: int = 1
    norm: bool = False
    rate: float = 0.01
    weight_decay: float = 0.05
    clip: float = 0.3
    dropout: float = 0.1
    order: int = 0

    def but(self, **changes):
        return dataclasses.replace(self, **changes)


def generator(*key):
    seed = 7
    for part in key:
        seed = (seed * 1000003 + int(part) + 17) % (1 << 40)
    return torch.Generator().manual_seed(seed)


def normal(shape, scale, *key):
    return torch.randn(shape, generator=generator(*key)) * scale


_samples = {}


def sample(trainer, i):
    """The content of sample i, the same everywhere."""
    if (trainer, i) not in _samples:
        if trainer == "energy":
            context = normal((FEATURES,), 1.0, 300, i)
            _samples[trainer, i] = context, context.roll(1) * 0.8 + normal((FEATURES,), 0.3, 301, i)
        else:
            tokens = torch.randint(0, CLASSES, (TOKENS,), generator=generator(302, i))
            _samples[trainer, i] = tokens, torch.arange(TOKENS) < 2 + i % (TOKENS - 1)
    return _samples[trainer, i]


class _Gather(torch.autograd.Function):
    """All ranks' rows; the gradient of a rank's rows is the sum over the losses of all ranks."""

    @staticmethod
    def forward(ctx, own):
        ctx.rows = len(own)
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad[dist.get_rank() * ctx.rows :][: ctx.rows]


class _Sum(torch.autograd.Function):
    """The sum over ranks, with that sum's gradient."""

    @staticmethod
    def forward(ctx, value):
        value = value.clone()
        dist.all_reduce(value)
        return value

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class Energy(torch.nn.Module):
    """The energy of each row with each candidate, lower is a better match: [rows, columns]."""

    def __init__(self, seed):
        super().__init__()
        self.context_encoder, self.action_encoder = self._encoder(), self._encoder()
        self.energy_head = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.log_tau = torch.nn.Parameter(torch.tensor(math.log(0.7)))
        self.draw(seed)

    @staticmethod
    def _encoder():
        return torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, WIDTH))

    def draw(self, seed):
        with torch.no_grad():
            for k, (name, p) in enumerate(self.named_parameters()):
                if name != "log_tau":
                    p.copy_(normal(p.shape, 0.5 / math.sqrt(p.shape[-1]), seed, 1, k))

    def forward(self, t, context, action, mask):
        hidden = self.context_encoder[1](self.context_encoder[0](context)) * mask
        rows = self.context_encoder[2](hidden)
        columns = t.fault.gathered(t, self.action_encoder(action))
        rows, columns = t.fault.encoded(t, rows, columns)
        return -self.energy_head(rows) @ columns.t()


class Classify(torch.nn.Module):
    """Logits of each token: [rows, tokens, classes]."""

    def __init__(self, seed, norm):
        super().__init__()
        self.embedding = torch.nn.Embedding(CLASSES, WIDTH)
        self.up = torch.nn.Linear(WIDTH, HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, CLASSES)
        if norm:
            self.norm_scale = torch.nn.Parameter(torch.ones(HIDDEN))
            self.norm_shift = torch.nn.Parameter(torch.zeros(HIDDEN))
            self.register_buffer("running_mean", torch.zeros(HIDDEN))
            self.register_buffer("running_var", torch.ones(HIDDEN))
        self.norm = norm
        self.draw(seed)

    def draw(self, seed):
        with torch.no_grad():
            for k, (name, p) in enumerate(self.named_parameters()):
                if not name.startswith("norm"):
                    p.copy_(normal(p.shape, 0.5 / math.sqrt(p.shape[-1]), seed, 2, k))

    def forward(self, t, tokens, valid, mask):
        hidden = self.up(self.embedding(tokens))
        if self.norm:
            hidden = self._normalised(t, hidden, valid)
        return self.head(torch.tanh(hidden) * mask.unsqueeze(1))

    def _normalised(self, t, x, valid):
        weight = valid.unsqueeze(2).float()
        count = t.fault.statistics(t, weight.sum())
        mean = t.fault.statistics(t, (x * weight).sum((0, 1))) / count
        var = t.fault.statistics(t, ((x - mean) ** 2 * weight).sum((0, 1))) / count
        with torch.no_grad():
            kept_mean, kept_var = t.fault.kept_statistics(t, x, weight, mean.detach(), var.detach())
            self.running_mean.lerp_(kept_mean, 0.1)
            self.running_var.lerp_(kept_var, 0.1)
        return (x - mean) / torch.sqrt(var + 1e-5) * self.norm_scale + self.norm_shift


def make_model(s):
    return Energy(s.seed) if s.trainer == "energy" else Classify(s.seed, s.norm)


class Watch:
    """What a tracer is told; this one forgets it."""

    def __getattr__(self, name):
        return lambda *arguments: None


class Fault:
    """The seams of the loop, here with what is right. `t` is the rank's trainer, which knows its `step`."""

    name, first, of_one_rank = "none", 0, False

    def on(self, t, rank=1):
        """Whether this is the rank that has the fault."""
        self.of_one_rank = True
        return t.rank == min(rank, t.s.world - 1)

    def after(self, t):
        return t.step >= self.first

    def shard(self, t):
        return dict(rank=t.rank, seed=t.s.seed)

    def epoch(self, t, epoch):
        return epoch

    def ids(self, t, ids, later):
        return ids

    def content(self, t, ids):
        return ids

    def initial(self, t):
        pass

    def wrapping(self, t):
        return {}

    def wrapped(self, t):
        return t.ddp or t.model

    def unwatched(self, t):
        return []

    def mask_key(self, t, i, place):
        return t.s.seed, i

    def masked(self, t):
        return t.s.dropout > 0

    def gathered(self, t, own):
        return _Gather.apply(own) if t.s.world > 1 else own

    def encoded(self, t, rows, columns):
        return rows, columns

    def statistics(self, t, value):
        return _Sum.apply(value) if t.s.world > 1 else value

    def kept_statistics(self, t, x, weight, mean, var):
        return mean, var

    def count(self, t, own):
        return t.sum_over_ranks(own, "valid")

    def part_weight(self, t, ids):
        """What a token or row of one micro-step counts."""
        return t.weight

    def scored(self, t, energies, ids, labels):
        """Energies, the ids of their columns and the rows' labels."""
        return energies, ids, labels

    def temperature(self, t):
        return t.model.log_tau.exp()

    def loss(self, t, loss):
        return loss

    def local(self, t, grads):
        pass

    def reduce(self, t, buffer):
        buffer.div_(t.s.world)
        dist.all_reduce(buffer)
        return buffer

    def reduced(self, t):
        pass

    def norm_for_clipping(self, t, norm):
        return norm

    def clip(self, t):
        return t.s.clip

    def rate(self, t):
        """The learning rate that is set; what the update takes is the optimizer's."""
        return t.s.rate * 0.99**t.step

    def optimizer(self, t, parameters):
        return torch.optim.AdamW(parameters, lr=t.s.rate, weight_decay=t.s.weight_decay)

    def zero(self, t):
        t.optimizer.zero_grad(set_to_none=True)

    def before_update(self, t):
        pass

    def updates(self, t):
        return True

    def updated(self, t):
        pass


class Trainer:
    """One rank: its replica, sampler and optimizer."""

    def __init__(self, settings, rank=0, fault=None, watch=None, model=None, group=None):
        self.s, self.rank, self.step = settings, rank, -1
        self.fault, self.watch = fault or Fault(), watch or Watch()
        self.model = model if model is not None else make_model(settings)
        self.fault.initial(self)
        self.names = {id(p): n for n, p in self.model.named_parameters()}
        self.target = "energy_head.weight" if settings.trainer == "energy" else "head.weight"  # where one-tensor faults act
        self.ddp = None
        self.last = {}
        if settings.world > 1:
            self._wrap(group)
        self.optimizer = self.fault.optimizer(self, self.model.parameters())
        self.losses = []

    def _wrap(self, group):
        ignored = self.fault.unwatched(self)
        if ignored:
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.model, ignored)
        self.ddp = DistributedDataParallel(self.model, process_group=group, **self.fault.wrapping(self))
        self.ddp.register_comm_hook(self, Trainer._reduce)

    def _reduce(self, bucket):
        """DDP's own reduction, where a tracer sees what goes in and comes out."""
        grads = {self.names[id(p)]: g for p, g in zip(bucket.parameters(), bucket.gradients())}
        self.fault.local(self, grads)
        before = {n: g.clone() for n, g in grads.items()}
        buffer = self.fault.reduce(self, bucket.buffer())
        place, after = 0, {}
        for n, g in grads.items():
            after[n] = buffer[place : place + g.numel()].view_as(g)
            place += g.numel()
        self.watch.bucket(self, bucket.index(), before, after)
        self.last["local"].update(before)
        future = torch.futures.Future()
        future.set_result(buffer)
        return future

    def batches(self):
        """The ids of this rank's rows at each step, and those of the next step."""
        s = self.s
        sampler = DistributedSampler(range(s.samples), s.world, shuffle=True, drop_last=True, **self.fault.shard(self))
        loader = DataLoader(torch.arange(s.samples), batch_size=s.batch // s.world, sampler=sampler, drop_last=True)
        everything = []
        for epoch in range(s.steps * s.batch // s.samples + 2):
            sampler.set_epoch(self.fault.epoch(self, epoch))
            everything += [ids.tolist() for ids in loader]
        for step in range(s.steps):
            ids = everything[step]
            if s.order:
                ids = [ids[k] for k in torch.randperm(len(ids), generator=generator(s.order, step)).tolist()]
            yield step, ids, everything

    def train(self):
        self.watch.start(self)
        for step, ids, everything in self.batches():
            self.train_step(step, ids, everything)
        self.watch.finish(self)
        return self.losses

    def train_step(self, step, ids, everything=None):
        self.begin(step)
        ids = self.fault.ids(self, ids, everything or [ids] * (step + 2))
        parts = self.s.accumulation
        micro = [ids[k * len(ids) // parts : (k + 1) * len(ids) // parts] for k in range(parts)]
        self.weigh(ids)
        self.watch.samples(self, ids)
        for k, part in enumerate(micro):
            self.accumulate(part, last=k == parts - 1)
        return self.finish_step()

    def begin(self, step):
        self.step, self.loss, self.micro = step, 0.0, 0
        self.last["local"] = {}
        rate = self.fault.rate(self)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.watch.begin(self, step)
        self.fault.zero(self)

    def weigh(self, ids):
        """What a row of the energy trainer, or a token of the other, counts in this rank's loss."""
        total = self.fault.count(self, self.tokens(ids)) if self.s.trainer == "classify" else len(ids) * self.s.world
        self.weight = self.s.world / total

    def tokens(self, ids):
        return float(sum(int(sample("classify", i)[1].sum()) for i in ids))

    def sum_over_ranks(self, own, tag):
        value = torch.tensor([own])
        total = value.clone()
        if self.s.world > 1:
            dist.all_reduce(total)
        self.watch.collective(self, "all_reduce", tag, value, total, "sum")
        return float(total)

    def accumulate(self, ids, last=True):
        """Forward and backward of one micro-step."""
        inputs = self.inputs(ids)
        net = self.fault.wrapped(self)
        if self.ddp is not None and not last:
            with self.ddp.no_sync():
                loss = self._backward(net, inputs, ids)
        else:
            loss = self._backward(net, inputs, ids)
        self.loss += loss
        self.micro += 1
        return loss

    def inputs(self, ids):
        return [torch.stack(x) for x in zip(*(sample(self.s.trainer, i) for i in self.fault.content(self, ids)))]

    def _mask(self, ids):
        if not self.fault.masked(self):
            return torch.ones(len(ids), HIDDEN)
        keep = 1 - self.s.dropout
        keys = [self.fault.mask_key(self, i, k) for k, i in enumerate(ids)]
        self.watch.random(self, keys, HIDDEN)
        return torch.stack([(torch.rand(HIDDEN, generator=generator(900, self.step, *key)) < keep) / keep for key in keys])

    def _backward(self, net, inputs, ids):
        rows = self.row_losses(net, inputs, ids)
        loss = self.fault.loss(self, rows.sum() * self.fault.part_weight(self, ids))
        self.watch.row_losses(self, ids, rows)
        loss.backward()
        return float(loss.detach())

    def row_losses(self, net, inputs, ids):
        out = net(self, *inputs, self._mask(ids))
        if self.s.trainer == "classify":
            tokens, valid = inputs
            losses = F.cross_entropy(out.transpose(1, 2), (tokens * 3 + 1) % CLASSES, reduction="none")
            return (losses * valid).sum(1)
        columns = self.columns(ids)
        labels = torch.arange(len(ids)) + self.rank * len(ids)
        energies, columns, labels = self.fault.scored(self, out, columns, labels)
        self.watch.energies(self, ids, energies, columns)
        return F.cross_entropy(-energies / self.fault.temperature(self), labels, reduction="none")

    def columns(self, ids):
        if self.s.world == 1:
            return torch.tensor(ids)
        parts = [torch.empty(len(ids), dtype=torch.int64) for _ in range(self.s.world)]
        dist.all_gather(parts, torch.tensor(ids))
        return torch.cat(parts)

    def finish_step(self):
        """The mean over ranks is there: clip, update."""
        f, grads = self.fault, self.gradients()
        if self.ddp is None:
            f.local(self, grads)
        # What no reducer has seen is what the rank itself computed.
        self.last["local"] = {n: self.last["local"].get(n, g).clone() for n, g in grads.items()}
        f.reduced(self)
        self.watch.gradients(self, self.last["local"], grads)
        norm = torch.nn.utils.get_total_norm(list(grads.values()))
        self.watch.norm(self, norm)
        if f.clip(self):
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), f.clip(self), f.norm_for_clipping(self, norm))
        self.watch.applied(self, grads)
        f.before_update(self)
        if f.updates(self):
            self.optimizer.step()
        f.updated(self)
        self.watch.end(self)
        self.losses.append(self.loss)
        return self.loss

    def gradients(self):
        return {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}
