"""A run as it would be if one thing of it were otherwise: LOCKSTEP_GATHER=gradients, LOCKSTEP_SCHEDULE=once. Where that run trains as the
reference does, this thing is why the run itself does not.

gradients    what is gathered from the ranks carries gradients, whose backward pass sums over ranks
once         a schedule goes on once an update, however often the program steps it
"""

import functools
import sys
import weakref

import torch
import torch.distributed as dist

kinds = set()  # what gathers were in the run, in words: see `_Looked.backward`
_forwards = []  # of functions whose forward pass runs: what each has gathered
_detached = {}  # by place in memory: what has been detached
_lists = []  # what gathers were given to fill, the part that is this rank's, and its number


class _Sum(torch.autograd.Function):
    """[b, ...] of each rank to [W, b, ...]."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
        _plain["all_gather"](parts, x.contiguous(), group=group)
        return torch.stack(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient[dist.get_rank(ctx.group)], None


class _Looked(torch.autograd.Function):
    """[W, b, ...] as it is; its backward pass also asks what that of the program's own results, `made`, would give."""

    @staticmethod
    def forward(ctx, stacked, x, made, group):
        ctx.x, ctx.made, ctx.group = x, made, group
        return stacked.view_as(stacked)

    @staticmethod
    def backward(ctx, gradient):
        rank, size = dist.get_rank(ctx.group), dist.get_world_size(ctx.group)
        summed = gradient.contiguous().clone()
        dist.all_reduce(summed, group=ctx.group)
        given = gradient.clone()  # which a backward pass of the program's may reduce in place
        parts = list(given) if isinstance(ctx.made, (tuple, list)) else [given.reshape(ctx.made.shape)]
        made = list(ctx.made) if isinstance(ctx.made, (tuple, list)) else [ctx.made]
        own = None
        if all(each.requires_grad for each in made):
            with torch.enable_grad():
                own = torch.autograd.grad(made, ctx.x, parts, retain_graph=True, allow_unused=True)[0]
        close = lambda other: torch.allclose(own, other, rtol=1e-9, atol=1e-12 * float(other.abs().max()))  # noqa: E731
        kinds.add("without" if own is None else "summed" if close(summed[rank]) else "sliced" if close(gradient[rank])
                  else "averaged" if close(summed[rank] / size) else "other")  # fmt: skip
        return gradient, None, None, None


def _source(x):
    """What a tensor was before it was detached."""
    if x.requires_grad or not x.is_floating_point():
        return x
    found = _detached.get(x.data_ptr(), lambda: None)()
    return found if found is not None and found.shape == x.shape else x


def _gathered(x, group, kind):
    """[W, b, ...] with gradients; None where x needs none."""
    source = _source(x)
    if not source.requires_grad or source.is_leaf or dist.get_world_size(group) == 1 or x.dim() == 0:
        return None
    kinds.add(kind)
    torch.set_grad_enabled(True)  # until no_grad ends, within which nothing could carry any
    return _Sum.apply(source, group)


def _all_gather(plain):
    def all_gather(tensor_list, tensor, group=None, async_op=False):
        work = plain(tensor_list, tensor, group=group, async_op=async_op)
        if _forwards:
            _forwards[-1].append((tensor, group))
        elif not async_op and (stacked := _gathered(tensor, group, "without")) is not None:
            for part, each in zip(tensor_list, stacked.unbind()):
                part.copy_(each)
            _lists.append((tensor_list, tensor_list[dist.get_rank(group)], dist.get_rank(group)))
        return work

    return all_gather


def _all_gather_into(plain):
    def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
        work = plain(output_tensor, input_tensor, group=group, async_op=async_op)
        if _forwards:
            _forwards[-1].append((input_tensor, group))
        elif not async_op and (stacked := _gathered(input_tensor, group, "without")) is not None:
            output_tensor.copy_(stacked.reshape(output_tensor.shape))
        return work

    return all_gather_into_tensor


def _apply(plain):
    """Of a function of the program's own that gathers."""

    def apply(cls, *args, **kwargs):
        if cls in (_Sum, _Looked):
            return plain.__func__(cls, *args, **kwargs)
        _forwards.append([])
        try:
            made = plain.__func__(cls, *args, **kwargs)
        finally:
            gathered = _forwards.pop()
        given = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        if len(gathered) != 1 or len(given) != 1 or gathered[0][0].shape != given[0].shape or dist.get_world_size(gathered[0][1]) == 1:
            return made
        (x,), (_, group) = given, gathered[0]
        size = dist.get_world_size(group)
        many = isinstance(made, (tuple, list))
        if not (many and len(made) == size and all(m.shape == x.shape for m in made) or not many and made.numel() == size * x.numel() and made.shape[0] in (size, size * x.shape[0])):
            return made
        stacked = _Looked.apply(_Sum.apply(x, group), x, made, group)
        return type(made)(stacked.unbind()) if many else stacked.reshape(made.shape)

    return classmethod(apply)


def _from_gather(function, depth=5):
    return function is not None and depth > 0 and (function.name() == "_SumBackward" or any(_from_gather(each, depth - 1) for each, _ in function.next_functions))


def _detach(plain):
    def detach(self):
        if self.requires_grad and self.is_floating_point() and not _forwards:
            if _from_gather(self.grad_fn):
                kinds.add("detached")
                return self
            _detached[self.data_ptr()] = weakref.ref(self)
        return plain(self)

    return detach


def _backward(plain):
    def backward(*args, **kwargs):
        if any(parts[rank] is not part for parts, part, rank in _lists):
            kinds.add("put back")
        result = plain(*args, **kwargs)
        _lists.clear()
        _detached.clear()
        return result

    return backward


def schedule_once():
    """Once a process, as soon as torch is there."""
    from torch.optim import lr_scheduler, optimizer

    updates, stepped = [0], weakref.WeakKeyDictionary()  # of each schedule: the update it was stepped after, how often since

    def once(plain):
        def step(self, *args, **kwargs):
            if getattr(self, "_step_count", 1) == 0:  # by its constructor
                stepped[self] = updates[0], 0
                return plain(self, *args, **kwargs)
            at, count = stepped.get(self, (-1, 0))
            if count and at != updates[0]:
                kinds.add(f"{count} a step")
            stepped[self] = updates[0], count + 1 if at == updates[0] else 1
            return None if at == updates[0] else plain(self, *args, **kwargs)

        return step

    for kind in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau):
        kind.step = functools.wraps(kind.step)(once(kind.step))
    optimizer.register_optimizer_step_post_hook(lambda *_: updates.__setitem__(0, updates[0] + 1))


_plain = {}


def gather_with_gradients():
    """Once a process, as soon as torch is there."""
    for owner, name, make in ((dist, "all_gather", _all_gather), (dist, "all_gather_into_tensor", _all_gather_into), (torch.Tensor, "detach", _detach),
                              (torch.autograd, "backward", _backward), (torch.autograd.Function, "apply", _apply)):  # fmt: skip
        _plain[name] = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        made = make(_plain[name])
        setattr(owner, name, made if isinstance(made, classmethod) else functools.wraps(_plain[name])(made))
    sys.modules["torch.distributed.distributed_c10d"].all_gather = dist.all_gather
    sys.modules["torch.distributed.distributed_c10d"].all_gather_into_tensor = dist.all_gather_into_tensor
