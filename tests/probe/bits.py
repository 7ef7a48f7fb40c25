"""Training with the probe leaves the bits that it leaves without: parameters, gradients, buffers, optimizer and generator."""

import contextlib

import torch
import torch.nn.functional as F

import models
from case import Case
from trainer import Sharded, ShardedWords, Trainer, Words

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
        return super().train()


class AotCompiled(Compiled):
    backend = "aot_eager"


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
    *_case("BatchNorm", Buffers, 1, 2),
    *_case("dropout", Dropout, 2),
    *_case("tied weights", Tied, 2),
    *_case("FSDP2", ShardedClipped, 2, 3),
    *_case("FSDP2, accumulation", ShardedAccumulated, 2),
    *_case("FSDP2, accumulation, each reduced", ShardedWithoutNoSync, 2),
    *_case("FSDP2, one group", ShardedOnce, 3),
    *_case("FSDP2, a transformer", ShardedWords, 2),
]  # fmt: skip
