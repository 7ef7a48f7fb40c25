"""Tensor and pipeline parallel trainers of one small transformer, and two networks with an optimizer each."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import models
from trainer import Trainer, Words


class Tensor(Words):
    """Heads and hidden units split over all ranks, which see the same rows."""

    steps = 3

    def plan(self):
        return {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel(),
                "up": ColwiseParallel(), "down": RowwiseParallel()}  # fmt: skip

    def tensor_mesh(self):
        return init_device_mesh("cpu", (self.world,), mesh_dim_names=("tp",))

    def wrap(self, model):
        if self.world > 1:
            mesh = self.tensor_mesh()
            for block in model.blocks:
                parallelize_module(block, mesh, self.plan())
        return model

    def own_ids(self, step):
        return self.batch(step)

    def forward_backward(self, called, ids):
        self.tokens = float((self.labels(ids) >= 0).sum())
        return Trainer.forward_backward(self, called, ids)

    def share(self, y, micros):
        return 1 / self.tokens


class ShardedTensor(Tensor):
    """Two pairs of tensor ranks; FSDP2 over the pairs, which see different rows."""

    def wrap(self, model):
        if self.world > 1:
            self.mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            for block in model.blocks:
                parallelize_module(block, self.mesh["tp"], self.plan())
                fully_shard(block, mesh=self.mesh["dp"])
            fully_shard(model, mesh=self.mesh["dp"])
        return model

    def own_ids(self, step):
        return self.batch(step)[self.rank // 2 :: 2] if self.world > 1 else self.batch(step)

    def forward_backward(self, called, ids):
        """The mean over the two pairs is that over all tokens."""
        if self.world == 1:
            return super().forward_backward(called, ids)
        count = torch.tensor(float((self.labels(ids) >= 0).sum()))
        dist.all_reduce(count, group=self.mesh["dp"].get_group())
        self.tokens = float(count) / 2
        return Trainer.forward_backward(self, called, ids)


class Stage(models.Transformer):
    """The layers of one pipeline stage, under the names that they have in the whole."""

    def __init__(self, number, tied=False):
        super().__init__(tied)
        self.number = number
        if number == 0:
            self.norm = self.head = None
        else:
            self.words = self.places = None
        del self.blocks[1 - number]
        self.blocks = nn.ModuleDict({str(number): self.blocks[0]})

    def forward(self, x):
        if self.number == 0:
            x = self.words(x) + self.places.weight
        x = self.blocks[str(self.number)](x)
        return x if self.number == 0 else self.head(self.norm(x))


class Pipeline(Words):
    """Two stages; micro-batches of equal tokens would be needed for a mean of means, so that each row's tokens count by themselves."""

    steps, chunks = 3, 4

    def make_model(self):
        return Stage(self.rank) if self.world > 1 else models.Transformer()

    def wrap(self, model):
        return model

    @property
    def declare(self):
        return {"groups": {"pipeline": [0, 1]}, "replicas": [[0], [1]]} if self.world > 1 else {}

    def own_ids(self, step):
        return self.batch(step)

    def row_mean(self, logits, labels):
        """The mean over rows of their tokens' sum: micro-batches of equal rows may be averaged."""
        return models.token_losses(logits, labels).sum(1).mean() / models.POSITIONS

    def forward_backward(self, called, ids):
        x, y = self.inputs(ids), self.labels(ids)
        if self.probe is not None:
            self.probe.rows(ids, x, y)
        if self.world == 1:
            loss = self.row_mean(called(x), y)
            self.backward(loss)
            return loss.detach()
        stage = PipelineStage(called, self.rank, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, self.chunks, loss_fn=self.row_mean, **self.schedule_options())
        if self.rank == 0:
            schedule.step(x)
            return None
        losses = []
        schedule.step(target=y, losses=losses)
        return torch.stack([loss.detach() for loss in losses]).mean()

    def schedule_options(self):
        return {}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(models.FEATURES, 8), nn.Tanh(), nn.Linear(8, models.FEATURES))

    def forward(self, x):
        return self.net(x)


class Adversaries(Trainer):
    """A generator and a discriminator, each with its optimizer; each iteration updates both."""

    def make_model(self):
        self.generator, self.discriminator = Generator(), nn.Sequential(nn.Linear(models.FEATURES, 8), nn.Tanh(), nn.Linear(8, 1))
        return nn.ModuleList([self.generator, self.discriminator])

    def wrap(self, model):
        wrapped = [DistributedDataParallel(m) if self.world > 1 else m for m in (self.generator, self.discriminator)]
        return wrapped

    def make_optimizer(self):
        self.both = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (self.generator, self.discriminator)]
        return None

    def probed_optimizers(self):
        return self.both

    def zero_grad(self):
        pass

    def update(self):
        pass

    def forward_backward(self, called, ids):
        generator, discriminator = called
        x, share = self.inputs(ids), self.world / self.rows
        if self.probe is not None:
            self.probe.rows(ids, x)
        generator.zero_grad()
        fake = generator(self.labels(ids))
        loss = F.softplus(-discriminator(fake)).sum() * share
        loss.backward()
        self.both[0].step()
        discriminator.zero_grad()
        second = (F.softplus(-discriminator(x)) + F.softplus(discriminator(fake.detach()))).sum() * share
        second.backward()
        self.both[1].step()
        return loss.detach()

    def labels(self, ids):
        return models.OTHER_SIDE[ids]


class DiscriminatorFirst(Adversaries):
    """The generator's loss is that of the new discriminator, whose gradients it leaves dirty."""

    def forward_backward(self, called, ids):
        generator, discriminator = called
        x, share = self.inputs(ids), self.world / self.rows
        self.probe.rows(ids, x)
        for optimizer in self.both:
            optimizer.zero_grad()
        fake = generator(self.labels(ids))
        loss = (F.softplus(-discriminator(x)) + F.softplus(discriminator(fake.detach()))).sum() * share
        loss.backward()
        self.both[1].step()
        second = F.softplus(-discriminator(fake)).sum() * share
        second.backward()
        self.both[0].step()
        return loss.detach()
