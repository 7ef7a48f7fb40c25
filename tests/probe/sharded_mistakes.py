"""Mistakes of FSDP2, tensor parallel and pipeline trainers; as in mistakes.py."""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

import models
import parallel
from mistakes import check as seen
from case import Case
from layouts import Hybrid
from trainer import Sharded, ShardedWords, held


class Clipped(Sharded):
    clip = 0.05


class Accumulated(Sharded):
    micro = 3


class WrongGroup(Sharded):
    """Four ranks with rows of their own; gradients are reduced over pairs."""

    def mesh(self):
        if not hasattr(self, "pairs"):
            self.pairs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("other", "dp"))
        return self.pairs["dp"]


class ReplicasApart(Hybrid):
    """The two replicas draw weights of their own."""

    def make_model(self):
        torch.manual_seed(self.seed + self.rank // 2)
        return super().make_model()


class ShardedSum(Sharded):
    """The loss is the sum over rows, scaled as if ranks were not averaged."""

    def share(self, y, micros):
        return self.world * self.world / self.rows


class ShardedOverWorld(Sharded):
    def share(self, y, micros):
        return 1 / self.rows


class ShardedSameRows(Sharded):
    def own_ids(self, step):
        return self.batch(step)[: self.rows // self.world]


class NormOfOwnShard(Clipped):
    """Each rank clips by the norm of its own parts."""

    def clip_gradients(self):
        own = [held(p.grad) for p in self.model.parameters()]
        norm = torch.nn.utils.get_total_norm(own)
        for gradient in own:
            gradient.mul_(min(1.0, float(self.clip / (norm + 1e-6))))


class ShardedNotDivided(Accumulated):
    def share(self, y, micros):
        return 1 / len(y)


class OnlyLastReduced(Accumulated):
    """Gradients of all micro-steps but the last are thrown away."""

    @contextlib.contextmanager
    def held_back(self, called):
        yield
        for p in self.model.parameters():
            p.grad = None


class ShardedMeanOfMeans(ShardedWords):
    def share(self, y, micros):
        return 1 / float((y >= 0).sum())


class ReducedIn16Bits(Sharded):
    def wrap(self, model):
        if self.world > 1:
            fully_shard(model, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))
        return model


class BareHead(Sharded):
    """The head stays outside: FSDP2 ignores it, and nobody reduces it."""

    def wrap(self, model):
        if self.world > 1:
            fully_shard(model, ignored_params=set(model.head.parameters()))
        return model


class BiasTwice(parallel.Tensor):
    """Each tensor rank adds the output's bias to its own part of the sum."""

    def wrap(self, model):
        if self.world > 1:
            mesh = self.tensor_mesh()
            for block in model.blocks:
                parallelize_module(block, mesh, {name: style for name, style in self.plan().items() if name != "down"})
                parallelize_module(block, mesh, {"down": RowwiseParallel()})
                block.down.register_forward_hook(lambda layer, _inputs, output: output + held(layer.bias))
        return model


class RowsApart(parallel.Tensor):
    """Tensor ranks take rows of their own, as if they were replicas."""

    def own_ids(self, step):
        return self.batch(step)[self.rank :: self.world]


class TensorClipped(parallel.Tensor):
    clip = 0.05


class ReplicatedCounted(TensorClipped):
    """Squares of replicated parameters are added up over the tensor ranks too."""

    def clip_gradients(self):
        if self.world == 1:
            return super().clip_gradients()
        squares = sum(held(p.grad).square().sum() for p in self.model.parameters())
        dist.all_reduce(squares)
        torch.nn.utils.clip_grads_with_norm_([p for p in self.model.parameters() if not hasattr(p, "to_local")], self.clip, squares.sqrt())
        torch.nn.utils.clip_grads_with_norm_([p for p in self.model.parameters() if hasattr(p, "to_local")], self.clip, squares.sqrt(), foreach=False)


class NormApart(parallel.Tensor):
    """The norms' weights differ between tensor ranks."""

    def wrap(self, model):
        model = super().wrap(model)
        with torch.no_grad():
            model.norm.weight.add_(0.1 * self.rank)
        return model


class NotScaled(parallel.Pipeline):
    """Micro-batches' gradients are added, and not divided by their number."""

    def schedule_options(self):
        return {"scale_grads": False}


class FewerRows(parallel.Pipeline):
    """The first stage reads other rows than the last has labels for."""

    def inputs(self, ids):
        return models.words_of(ids[::-1])


def _case(kind, world, *codes, **more):
    words = "".join(" " + c.lower() if c.isupper() else c for c in kind.__name__).strip()
    return Case(f"sharded mistake: {words}", seen(kind, world, codes, **more))


CASES = [
    _case(WrongGroup, 4, "divided-by-wrong-world"),
    _case(ReplicasApart, 4, "initial-weights-differ", step=-1, right=ShardedWords),
    _case(ShardedSum, 3, "loss-times-world", "gradient-times-world"),
    _case(ShardedOverWorld, 3, "loss-over-world", "gradient-over-world"),
    _case(ShardedSameRows, 2, "shards-identical"),
    _case(NormOfOwnShard, 2, "norm-of-own-shard", "clip-on-local-norm"),
    _case(ShardedNotDivided, 2, "accumulation-not-scaled"),
    _case(OnlyLastReduced, 2, "only-last-micro-step"),
    _case(ShardedMeanOfMeans, 2, "mean-of-means"),
    _case(ReducedIn16Bits, 2, "reduced-in-low-precision"),
    _case(BareHead, 2, "parameter-not-reduced"),
    _case(BiasTwice, 2),
    _case(RowsApart, 2),
    _case(ReplicatedCounted, 2, "replicated-counted-in-norm"),
    _case(NormApart, 2, "initial-weights-differ", "labelled-replicated-but-differs", step=-1),
    _case(NotScaled, 2, "accumulation-not-scaled"),
    _case(FewerRows, 2, "sample-content"),
]  # fmt: skip
