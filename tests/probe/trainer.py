"""Trainers as users write them, with the probe's lines; a mistake, or another layout, is a subclass."""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import lockstep_probe
import models


class Trainer:
    """Classes of features, DistributedDataParallel where there are several ranks. `run`: see launch.Rank."""

    steps, rows, micro, rate, clip, first_step = 4, 24, 1, 0.2, None, 0
    ddp, seed, lines, level = {}, 3, 3, None
    declare = {}

    def __init__(self, run, lines=None, level=None, out=None):
        self.run, self.rank, self.world = run, run.rank, run.world
        self.lines = self.lines if lines is None else lines
        torch.manual_seed(self.seed)
        self.model = self.make_model()
        self.optimizers = []
        self.called = self.wrap(self.model)
        self.optimizer = self.make_optimizer()
        self.probe = None
        if self.lines:
            self.probe = lockstep_probe.attach(self.called, self.probed_optimizers(), out=run.folder if out is None else out or None, level=level or self.level,
                                               first_step=self.first_step, declare=self.declare, average=self.average())  # fmt: skip

    # What a layout or a mistake changes.

    def make_model(self):
        return models.Mlp()

    def wrap(self, model):
        return DistributedDataParallel(model, **self.ddp) if self.world > 1 else model

    def average(self):
        """A module of averaged weights that the trainer keeps."""

    def make_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.rate)

    def probed_optimizers(self):
        return self.optimizer

    def batch(self, step):
        """Sample ids of the whole step, in the order of one process: shuffled anew in each epoch."""
        size = models.SAMPLES // self.rows
        order = torch.randperm(models.SAMPLES, generator=torch.Generator().manual_seed(step // size)).tolist()
        return order[step % size * self.rows :][: self.rows]

    def own_ids(self, step):
        return self.batch(step)[self.rank :: self.world]

    def inputs(self, ids):
        return models.X[ids]

    def labels(self, ids):
        return models.Y[ids]

    def row_losses(self, called, x, y):
        return F.cross_entropy(called(x), y, reduction="none")

    def share(self, y, micros):
        """What the sum of a micro-step's losses is multiplied by; the mean over ranks then is that over all rows."""
        return self.world / self.rows

    def micro_steps(self, ids):
        size = -(-len(ids) // self.micro)
        return [ids[k * size : (k + 1) * size] for k in range(self.micro)]

    def held_back(self, called):
        """Around the micro-steps before the last."""
        return called.no_sync() if isinstance(called, DistributedDataParallel) else contextlib.nullcontext()

    def backward(self, loss):
        loss.backward()

    def forward_backward(self, called, ids):
        """One step's forward and backward passes; the loss that the trainer logs."""
        total, micros = 0.0, self.micro_steps(ids)
        for number, part in enumerate(micros):
            x, y = self.inputs(part), self.labels(part)
            if self.probe is not None:
                self.probe.rows(part, x, y)
            with self.held_back(called) if number < len(micros) - 1 else contextlib.nullcontext():
                rows = self.row_losses(called, x, y)
                loss = rows.sum() * self.share(y, micros)
                self.backward(loss)
            total += loss.detach()
        return total

    def reduce(self):
        """By hand, where no wrapper does it."""

    def average_gradients(self, parameters):
        for p in parameters if self.world > 1 else ():
            dist.all_reduce(p.grad)
            p.grad /= self.world

    def clip_gradients(self):
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)

    def update(self):
        self.clip_gradients()
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()

    def before_step(self, step):
        pass

    def train(self):
        for step in range(self.first_step, self.first_step + self.steps):
            self.before_step(step)
            self.zero_grad()
            loss = self.forward_backward(self.called, self.own_ids(step))
            self.reduce()
            self.update()
            if self.probe is not None:
                self.probe.step(loss, **self.told())
            self.after_step(step)
        return self

    def told(self):
        """What the probe is given beside the loss."""
        return {}

    def after_step(self, step):
        pass

    def state(self):
        """Everything that training leaves, for comparison of bits."""
        found = {f"parameter {n}": held(p) for n, p in self.model.named_parameters()}
        found |= {f"gradient {n}": held(p.grad) for n, p in self.model.named_parameters() if p.grad is not None}
        found |= {f"buffer {n}": b.detach() for n, b in self.model.named_buffers()}
        for number, optimizer in enumerate(self.all_optimizers()):
            for index, state in optimizer.state_dict()["state"].items():
                found |= {f"optimizer {number}.{index} {k}": held(v) if isinstance(v, torch.Tensor) else torch.tensor(float(v or 0)) for k, v in state.items()}
        found["random"] = torch.get_rng_state()
        return {name: tensor.clone() for name, tensor in found.items()}

    def all_optimizers(self):
        found = self.probed_optimizers()
        return list(found) if isinstance(found, (list, tuple)) else [found]


def held(tensor):
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach().to_dense()


class ByHand(Trainer):
    """Gradients are averaged by the program itself."""

    def wrap(self, model):
        if self.world > 1:
            for p in model.parameters():
                dist.broadcast(p.data, 0)
        return model

    def reduce(self):
        self.average_gradients(self.model.parameters())


class Sharded(Trainer):
    """FSDP2. `mesh()`: None is all ranks."""

    steps = 4

    def mesh(self):
        return None

    def wrap(self, model):
        if self.world > 1:
            more = {"mesh": self.mesh()} if self.mesh() is not None else {}
            for part in self.parts_to_shard(model):
                fully_shard(part, **more)
            fully_shard(model, **more)
        return model

    def parts_to_shard(self, model):
        return [model.second]

    @contextlib.contextmanager
    def held_back(self, called):
        if self.world == 1:
            yield
            return
        called.set_requires_gradient_sync(False)
        yield
        called.set_requires_gradient_sync(True)


class Resumed(Trainer):
    """Two steps without a probe, of which a checkpoint is loaded; then the rest."""

    first_step, lines = 2, 0

    def train(self):
        steps = self.steps
        self.first_step, self.steps, self.lines = 0, 2, 0
        Trainer.train(self)
        self.loaded()
        self.first_step, self.steps = 2, steps - 2
        self.probe = lockstep_probe.attach(self.called, self.optimizer, out=self.run.folder, first_step=2)
        return Trainer.train(self)

    def loaded(self):
        """What a wrong resumption changes."""

    def __init__(self, run, lines=None, **more):
        super().__init__(run, lines=0, **more)


class Owners(Trainer):
    """Each rank's optimizer moves every so manyth parameter, and the owner sends it to the others."""

    def owner(self, number):
        return number % self.world

    def make_optimizer(self):
        self.all_parameters = list(self.model.parameters())
        own = [p for k, p in enumerate(self.all_parameters) if self.owner(k) == self.rank]
        return torch.optim.AdamW(own, lr=0.01)

    def zero_grad(self):
        self.model.zero_grad()

    def update(self):
        super().update()
        if self.world > 1:
            for k, p in enumerate(self.all_parameters):
                dist.broadcast(p.data, self.owner(k))


class OwnersOfOne(Owners):
    """Every rank has the state of all parameters, as a checkpoint left it, and moves its own alone."""

    def make_optimizer(self):
        self.all_parameters = list(self.model.parameters())
        return torch.optim.AdamW(self.all_parameters, lr=0.01)

    def update(self):
        gradients = [p.grad for p in self.all_parameters]
        for k, p in enumerate(self.all_parameters):
            p.grad = gradients[k] if self.owner(k) == self.rank else None
        super().update()
        for p, gradient in zip(self.all_parameters, gradients):
            p.grad = gradient


class Words(Trainer):
    """Next words, of rows with padding: the mean over all tokens that count."""

    rate = 0.3

    def make_model(self):
        return models.Transformer()

    def inputs(self, ids):
        return models.words_of(ids)

    def labels(self, ids):
        return models.next_words_of(ids)

    def row_losses(self, called, x, y):
        return models.token_losses(called(x), y).sum(1)

    def forward_backward(self, called, ids):
        count = torch.tensor(float((self.labels(ids) >= 0).sum()))
        if self.world > 1:
            dist.all_reduce(count)
        self.tokens = float(count)
        return super().forward_backward(called, ids)

    def share(self, y, micros):
        return self.world / self.tokens


class ShardedWords(Sharded, Words):
    def parts_to_shard(self, model):
        return list(model.blocks)
