"""Training with the probe leaves the bits that it leaves without: parameters, gradients, buffers, optimizer and generator."""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F

import models
from case import Case
from trainer import ByHand, Sharded, ShardedWords, Trainer, Words

LEVELS = (None, "off", "hash", "full")


def differences(a, b):
    return [name for name in {**a, **b} if name not in a or name not in b or not torch.equal(a[name], b[name])]


def check(kind, world, levels=LEVELS):
    def on_bench(bench):
        def program(run):
            states = {}
            for level in levels:
                trainer = kind(run, lines=3 if level else 0, level=level, out=f"{run.folder}/{level}").train()
                states[level] = trainer.state()
                if trainer.probe is not None:
                    trainer.probe.finish()
            for level in levels[1:]:
                differ = differences(states[None], states[level])
                assert not differ, f"rank {run.rank}, level {level}: not the same bits: {differ}"

        bench.run(program, world, "run")
        return f"{world} rank{'s' if world > 1 else ''}, levels {', '.join(levels[1:])}"

    return on_bench


class Adam(Trainer):
    def make_optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=0.01)


class BucketViews(Adam):
    ddp = {"gradient_as_bucket_view": True}


class SmallBuckets(Adam):
    ddp = {"bucket_cap_mb": 0.0002}


class StaticGraph(Adam):
    ddp = {"static_graph": True, "bucket_cap_mb": 0.0002}


class Unused(Adam):
    """Rank 0 does not use the second layer in odd steps."""

    ddp = {"find_unused_parameters": True}

    def make_model(self):
        return models.SometimesUnused()

    def before_step(self, step):
        self.model.skips = self.rank == 0 and step % 2 == 1


class Accumulated(Adam):
    micro = 3


class AccumulatedWithoutNoSync(Accumulated):
    def held_back(self, called):
        return contextlib.nullcontext()


class Clipped(Adam):
    clip = 0.05


class Autocast(Clipped):
    def row_losses(self, called, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(called(x), y, reduction="none")


class Scaled(Clipped):
    """With a GradScaler; the update of step 1 overflows and is left out."""

    def make_optimizer(self):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        return super().make_optimizer()

    def before_step(self, step):
        self.overflow = step == 1

    def backward(self, loss):
        self.scaler.scale(loss * float("inf") if self.overflow else loss).backward()

    def update(self):
        self.scaler.unscale_(self.optimizer)
        self.clip_gradients()
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Compiled(Adam):
    backend = "eager"

    def wrap(self, model):
        return torch.compile(super().wrap(model), backend=self.backend)

    def train(self):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        return super().train()


class AotCompiled(Compiled):
    backend = "aot_eager"


class CompiledBackward(Compiled):
    """torch.compile looks at what runs while a compiled function does: the probe is no part of it."""

    def backward(self, loss):
        torch.compile(lambda: loss.backward(), backend=self.backend)()

    def state(self):
        return super().state() | {"is the probe compiled": torch.tensor(torch._dynamo.utils.counters["frames"]["total"] > 40)}


class Buffers(Adam):
    def make_model(self):
        return models.Conv()

    def inputs(self, ids):
        return models.SERIES[ids]


class Dropout(Adam):
    def make_model(self):
        return models.Mlp(dropout=0.3)


class Tied(Words):
    def make_model(self):
        return models.Transformer(tied=True)


class Sparse(Trainer):
    """A table's gradients are sparse."""

    def make_model(self):
        table = torch.nn.EmbeddingBag(models.SAMPLES, 6, sparse=True)
        return torch.nn.Sequential(table, torch.nn.Linear(6, models.CLASSES))

    def inputs(self, ids):
        return torch.tensor(ids)[:, None] // 2


class Frozen(Trainer):
    """The first layer is frozen."""

    def make_model(self):
        model = models.Mlp()
        model.first.requires_grad_(False)
        return model

    def make_optimizer(self):
        return torch.optim.SGD([p for p in self.model.parameters() if p.requires_grad], lr=self.rate)


class Thawed(Frozen):
    """From step 2 on the first layer trains too: wrapped anew, and a group of its own."""

    def before_step(self, step):
        if step == 2:
            self.model.first.requires_grad_(True)
            self.called = self.wrap(self.model)
            self.optimizer.add_param_group({"params": list(self.model.first.parameters()), "lr": 0.02})


class HooksReduce(ByHand):
    """A hook of each parameter, there before the probe, divides its gradient and starts its reduction."""

    def make_optimizer(self):
        self.works = []
        for p in self.model.parameters() if self.world > 1 else ():
            p.register_post_accumulate_grad_hook(lambda p: self.works.append(dist.all_reduce(p.grad.div_(self.world), async_op=True)))
        return super().make_optimizer()

    def reduce(self):
        while self.works:
            self.works.pop().wait()


class Flat(Trainer):
    """Each rank updates its piece of a flat copy of all parameters, and they gather the pieces."""

    def wrap(self, model):
        return model

    def make_optimizer(self):
        self.ends = list(self.model.parameters())
        whole = torch.nn.utils.parameters_to_vector(self.ends).detach()
        self.size = -(-len(whole) // self.world)
        self.piece = self.padded(whole)[self.rank * self.size :][: self.size].clone().requires_grad_()
        return torch.optim.Adam([self.piece], lr=0.01)

    def padded(self, whole):
        return torch.nn.functional.pad(whole, (0, self.size * self.world - len(whole)))

    def zero_grad(self):
        self.model.zero_grad()

    def update(self):
        whole = self.padded(torch.cat([p.grad.flatten() for p in self.ends]))
        pieces = [torch.zeros(self.size) for _ in range(self.world)]
        if self.world > 1:
            dist.all_reduce(whole)
        self.piece.grad = whole[self.rank * self.size :][: self.size] / self.world
        self.optimizer.step()
        if self.world > 1:
            dist.all_gather(pieces, self.piece.detach())
        else:
            pieces = [self.piece.detach()]
        torch.nn.utils.vector_to_parameters(torch.cat(pieces)[: len(whole)], self.ends)


class Served(ByHand):
    """Rank 0 makes every update, and sends the parameters."""

    def update(self):
        if self.rank == 0:
            self.optimizer.step()
        for p in self.model.parameters() if self.world > 1 else ():
            dist.broadcast(p.data, 0)


class FlatParameters(Trainer):
    """FSDP1."""

    def wrap(self, model):
        return torch.distributed.fsdp.FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True) if self.world > 1 else model

    def make_optimizer(self):
        return torch.optim.SGD(self.called.parameters(), lr=self.rate)


class ShardedClipped(Sharded):
    clip = 0.05

    def make_optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=0.01)


class ShardedAccumulated(ShardedClipped):
    micro = 3


class ShardedWithoutNoSync(ShardedAccumulated):
    def held_back(self, called):
        return contextlib.nullcontext()


class ShardedOnce(ShardedClipped):
    """The root alone: one group of parameters."""

    def parts_to_shard(self, model):
        return []


def _case(name, kind, *worlds, **more):
    return [Case(f"{name}, {world} rank{'s' if world > 1 else ''}", check(kind, world, **more)) for world in worlds]


CASES = [
    *_case("adamw", Adam, 1, 2, 3),
    *_case("bucket views", BucketViews, 2, 3),
    *_case("small buckets", SmallBuckets, 3),
    *_case("static graph", StaticGraph, 2),
    *_case("a rank leaves a parameter out", Unused, 2, 3),
    *_case("accumulation in no_sync", Accumulated, 1, 2),
    *_case("accumulation without no_sync", AccumulatedWithoutNoSync, 2),
    *_case("clipping", Clipped, 2),
    *_case("autocast", Autocast, 1, 2),
    *_case("GradScaler, one update left out", Scaled, 1, 2),
    *_case("compiled, eager", Compiled, 1, levels=(None, "full")),
    *_case("compiled, aot_eager", AotCompiled, 2, levels=(None, "full")),
    *_case("compiled, backward pass too", CompiledBackward, 1, 2, levels=(None, "full")),
    *_case("BatchNorm", Buffers, 1, 2),
    *_case("dropout", Dropout, 2),
    *_case("tied weights", Tied, 2),
    *_case("sparse gradients", Sparse, 2),
    *_case("wrapped anew", Thawed, 2),
    *_case("hooks that reduce", HooksReduce, 2),
    *_case("flat pieces", Flat, 2),
    *_case("one rank makes the updates", Served, 2),
    *_case("FSDP2", ShardedClipped, 2, 3),
    *_case("FSDP2, accumulation", ShardedAccumulated, 2),
    *_case("FSDP2, accumulation, each reduced", ShardedWithoutNoSync, 2),
    *_case("FSDP2, one group", ShardedOnce, 3),
    *_case("FSDP2, a transformer", ShardedWords, 2),
]  # fmt: skip
