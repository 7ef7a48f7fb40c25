"""Hooks of modules, which leave themselves out of graphs that torch.compile makes, and what puts hooks somewhere. torch.compile skips all other files of the probe
but float64.py: it looks at every function that runs while a compiled one does, and would compile the probe's, which takes seconds."""

import contextlib
import os
import weakref

import torch

from lockstep_probe.guard import Hook, OwnersHook, listeners

_silent = [0]  # how many calls of `silence` are open


def keep_out(rules):
    """`rules`: torch._dynamo.trace_rules. Each call of their `add` takes milliseconds."""
    folder = os.path.dirname(__file__)
    names = [name for name in os.listdir(folder) if name.endswith(".py") and name not in ("hooks.py", "float64.py")]
    rules.SKIP_DIRS += [os.path.join(folder, name) for name in names]
    rules._recompile_re()


def _has_values():
    """Not in a graph that is compiled, and not where a forward pass has no values: in a trace, a transform of torch.func, with fake tensors."""
    if torch.compiler.is_compiling() or _silent[0] or torch._C._get_tracing_state() is not None:
        return False
    return torch._C._functorch.peek_interpreter_stack() is None and torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None


def where_values(listener):
    return lambda *args: listener(*args) if _has_values() else None


class ModuleHook(OwnersHook):
    __slots__ = ()
    __call__ = where_values(OwnersHook.__call__)


class Attached:
    """A hook, as `register` puts it somewhere, until `remove`. `owner`: the module or optimizer; None for a parameter."""

    def __init__(self, register, listener, owner=None, **options):
        is_module = isinstance(owner, torch.nn.Module)
        hook = Hook() if owner is None else ModuleHook() if is_module else OwnersHook()
        if owner is not None:  # a compiled update calls it between its graphs
            listener = weakref.ref(owner), listener if is_module else torch.compiler.disable(listener)
        self._number = hook.number
        listeners[self._number] = listener
        self._handle = register(hook, **options)

    def remove(self):
        self._handle.remove()
        listeners.pop(self._number, None)


@contextlib.contextmanager
def silence():
    """Hooks of modules and optimizers do nothing."""
    _silent[0] += 1
    try:
        yield
    finally:
        _silent[0] -= 1
