"""Keeps a trainer safe from the probe: its calls are timed, an error in one switches the probe off, and what hangs on a model holds nothing of it."""

import contextlib
import functools
import itertools
import os
import time

import torch

from lockstep_probe.ownership import Taken

listeners, _numbers = {}, itertools.count()  # what hooks call, by the hooks' numbers


class Hook:
    """On a parameter of the trainer's. It holds a number alone; a copy of it, and what is unpickled in its place, does nothing, also where
    lockstep_probe is not installed."""

    __slots__ = ("number",)
    __torch_unserializable__ = True  # says torch: not a word that it is left out

    def __init__(self):
        self.number = next(_numbers)

    def __call__(self, *args):
        listener = listeners.get(self.number)
        return None if listener is None else listener(*args)

    def __deepcopy__(self, _memo):
        return contextlib.nullcontext().__exit__  # takes whatever it is given, and returns None

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")


class OwnersHook(Hook):
    """On an optimizer or a module, for it alone: a replica shares the hooks of its original."""

    __slots__ = ()

    def __call__(self, owner, *args):
        known, listener = listeners.get(self.number, (None, None))
        return listener(owner, *args) if known is not None and known() is owner else None


def _is_ours(hook):
    return isinstance(hook, Hook) or getattr(hook, "__func__", None) is contextlib.nullcontext.__exit__


def without_hooks(state):
    """A module's state for a copy or a file."""
    ours = [key for key, hook in state.get("_forward_pre_hooks", {}).items() if _is_ours(hook)]
    for name in ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs") if ours else ():
        state[name] = type(state[name])((key, value) for key, value in state[name].items() if key not in ours)
    return state


@contextlib.contextmanager
def hooks_off(module):
    """For what compiles every hook that it finds on a module and within it."""
    found = [(m, key, hook, m._forward_pre_hooks_with_kwargs.pop(key, None))
             for m in module.modules() for key, hook in m._forward_pre_hooks.items() if _is_ours(hook)]  # fmt: skip
    for m, key, *_ in found:
        del m._forward_pre_hooks[key]
    try:
        yield
    finally:
        for m, key, hook, with_kwargs in found:
            m._forward_pre_hooks[key] = hook
            m._forward_pre_hooks.move_to_end(key, last=False)
            if with_kwargs:
                m._forward_pre_hooks_with_kwargs[key] = with_kwargs


def is_captured():
    """Does this thread's work go into a CUDA graph, and is not done now? Asking for a value would break the graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def guarded(method):
    """Of the trainer's calls into a part of `self.probe`: counts their time, and switches the probe off where it fails. Training goes on."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        probe = self.probe
        if probe.is_off or probe.closed or os.getpid() != probe.process:
            return None
        if is_captured():
            probe._note("a CUDA graph is made of a part of training: what its replays do is not recorded", once="graph")
            return None
        began = time.perf_counter()
        outer, probe.inside = probe.inside, True
        try:
            return method(self, *args, **kwargs)
        except Taken as taken:
            probe.stand_aside(taken)
            return None
        except Exception as error:  # noqa: BLE001  whatever it is, the trainer must not see it
            if os.environ.get("LOCKSTEP_PROBE_STRICT"):
                raise
            probe.give_up(error)
            return None
        finally:
            probe.inside = outer
            if not outer:
                probe.seconds += time.perf_counter() - began

    return call
