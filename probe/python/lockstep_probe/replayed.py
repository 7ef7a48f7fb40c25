"""The probe of a model in which steps are replayed: there are no updates, and collectives are not the trainer's."""

import contextlib
import functools

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep_probe import ownership
from lockstep_probe.guard import guarded
from lockstep_probe.probe import Probe
from lockstep_probe.recorder import hash_in
from lockstep_probe.settings import Settings


NARROW = (torch.float32, torch.bfloat16, torch.float16)
WAYS = ("promoted", "watched", "plain")


def _is_narrow(value):
    return isinstance(value, torch.Tensor) and value.dtype in NARROW


def _leaves(value):
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, (list, tuple)) else [value]


def _widened(value):
    if isinstance(value, (list, tuple)):
        return type(value)(map(_widened, value))
    return value.double() if _is_narrow(value) else torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


@functools.cache
def _kind(func):
    """Is an operation left as it is (views, changes in place, what it draws)? And the places of the arguments that it changes."""
    infos = [argument.alias_info for argument in func._schema.arguments]
    fixed = any(info is not None for info in infos) and "lift_fresh" not in func.name()
    return fixed or torch.Tag.nondeterministic_seeded in func.tags, [k for k, info in enumerate(infos) if info is not None and info.is_write]


class _Watch(TorchDispatchMode):
    """Sees each operation of a replay in float64. See `Wide`."""

    def __init__(self, wide):
        super().__init__()
        self._wide, self._generator = wide, torch.Generator().manual_seed(7)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, (fixed, places) = kwargs or {}, _kind(func)
        written = [each for k in places if k < len(args) for each in _leaves(args[k]) if _is_narrow(each)]
        if written:
            return self._change(func, written, args, kwargs)
        if fixed:
            return func(*args, **kwargs)
        wide = [_widened(each) for each in args], {key: _widened(each) for key, each in kwargs.items()}
        if self._wide.way == "promoted":
            args, kwargs = wide
        result = func(*args, **kwargs)
        narrow = [each for each in _leaves(result) if _is_narrow(each)]
        if narrow and any(isinstance(t, torch.Tensor) and t.is_floating_point() for t in _leaves(args)) and not self._is_exact(func, result, *wide):
            self._rounds(func, narrow)
        return result

    def _is_exact(self, func, result, args, kwargs):
        """Has it the values that it has in float64, as what only moves numbers has?"""
        with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):
            return all(torch.equal(a.double(), b.double()) for a, b in zip(_leaves(result), _leaves(func(*args, **kwargs))) if _is_narrow(a))
        return False

    def _change(self, func, written, args, kwargs):
        """Of a tensor in a narrower type that was there before."""
        exact = func.name().startswith(("aten::zero_", "aten::fill_")) or (func.name().startswith("aten::copy_") and _is_narrow(args[1]))
        before = func.namespace == "c10d"  # what others will add; afterwards it may still be on its way
        if before:
            self._rounds(func, written)
        result = func(*args, **kwargs)
        if not before and not exact:
            self._rounds(func, written)
        return result

    def _rounds(self, func, tensors):
        """Notes it; and moves numbers by one rounding up or down: all but whole ones, which are exact."""
        self._wide.narrow.add(func.name().split(".")[0])
        for each in tensors if self._wide.nudges else ():
            sign = torch.randint(0, 2, each.shape, generator=self._generator).to(each) * 2 - 1
            each.copy_(torch.where(each == each.round(), each, each + each * sign * torch.finfo(each.dtype).eps))


class Wide:
    """A context in which a function computes in float64, where `way` is not None: by the default type, and

    promoted  what it casts to a narrower type, makes or holds in one is float64, but for tensors that it changes in place
    watched   it is as it is, where it does not run so
    plain     and nothing is known of what it does, where it does not run under a TorchDispatchMode

    `narrow`: operations that computed in a narrower type all the same. `nudges`: let them be one rounding off.
    """

    def __init__(self, way):
        self.way, self.narrow, self.nudges = way, set(), False
        self._watch, self._before = None, None

    def __enter__(self):
        self._before = torch.get_default_dtype()
        if self.way:
            torch.set_default_dtype(torch.float64)
        if self.way in WAYS[:2]:
            self._watch = _Watch(self)
            self._watch.__enter__()

    def __exit__(self, *error):
        if self._watch is not None:
            self._watch.__exit__(*error)
            self._watch = None
        torch.set_default_dtype(self._before)


class Held:
    """In a trace's place: the last step's records."""

    def header(self, _fields):
        pass

    def step(self, _number, records, _kind=None):
        self.records = records

    def finish(self, whole):
        """There is no file to close."""


class ReplayedProbe(Probe):
    """`of`: the probe of the training whose function is replayed. Without a folder its records stay in memory."""

    def __init__(self, models, folder, of):
        self._in_memory, self._of_wrapped = not folder, bool(of._wrappers)
        super().__init__(models, [], Settings(out=folder or "memory", level="full"), declare=of.declared, own=of.own, rank=of.rank, world_size=of.world_size,
                         tier="replayed")  # fmt: skip
        self.replicas = of.replicas

    def _nothing(self, *_args, **_kwargs):
        """The training's probe does it; and the loss is what the function returns."""

    claim = open_heartbeat = listen_to_collectives = on_loss = after_loss = describe = say_what_it_takes = _nothing

    def trace(self, hashes):
        return Held() if self._in_memory else super().trace(hashes)

    def wrappers(self):
        return super().wrappers() if self._of_wrapped else []

    @guarded
    def end_step(self):
        self.gradients.settle()
        if self.gradients.ends_held:  # the function reduces nothing, as the trainer does it by hand
            for watched in self.parameters:
                watched.reduced = None
        if self.by_hand or self.gradients.ends_held:
            self._reduce()
        self.gradients.of_step(self.current)
        self.write()

    def _reduce(self):
        """Of a trainer that reduces by itself: what the replay function has reduced, or else the mean over ranks."""
        watched = [w for w in self.parameters if w.local is not None and w.parameter.grad is not None]
        together = next((ranks for ranks in self.replicas or () if self.rank in ranks), range(self.world_size))
        reduces = any(hash_in(self.gradients.record("local gradients", w, w.parameter.grad)) != hash_in(w.local) for w in watched)
        reduces = torch.tensor(reduces, dtype=torch.int32)
        dist.all_reduce(reduces, op=dist.ReduceOp.MAX)
        if not reduces and len(together) not in (1, self.world_size):
            return  # some of the ranks: how, the probe does not know
        for each in watched if not reduces and len(together) > 1 else ():
            dist.all_reduce(each.parameter.grad)
            if self.declared.get("gradient_reduction") != "sum":
                each.parameter.grad /= self.world_size
        self.gradients.reduced_by_hand(self.parameters.tensors())

    @guarded
    def close(self):
        self.finished = True
        ownership.not_at_end(self.finish)
        self.writer.finish(whole=True)
        self.is_off = True
