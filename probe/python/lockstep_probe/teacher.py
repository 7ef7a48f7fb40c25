"""The trainer's module of averaged weights while steps are replayed: a function that calls it, as a mean teacher's does, needs those of the step."""

import torch

from lockstep_probe import model


def to_wide(value):
    """The same with every float in float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() and value.dtype != torch.float64 else value
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(to_wide, value))
    if type(value) is dict:
        return {key: to_wide(each) for key, each in value.items()}
    return value


class Teacher:
    """A context: the module has other tensors within it, and its own, untouched, after it."""

    def __init__(self, state):
        self._module = state.average_module
        self._own = [(name, tensor, tensor.data) for name, tensor, _ in state.averages_in_snapshot()]
        self._lacks, self._wide, self._handle = "", False, None

    def __enter__(self):
        if self._own:
            self._handle = self._module.register_forward_pre_hook(self._called, with_kwargs=True)
        return self

    def __exit__(self, *_error):
        for _, tensor, data in self._own:
            tensor.data = data
        if self._handle is not None:
            self._handle.remove()

    def load(self, snapshot, wide):
        """What a snapshot has. What it lacks is an error only where the function calls the module."""
        self._lacks, self._wide = "", wide
        for name, tensor, data in self._own:
            kept = snapshot.tensors.get(name)
            if kept is None or model.is_sharded(tensor) or kept.shape != data.shape:
                self._lacks = self._lacks or f"the module of averaged weights is called, and the snapshot of step {snapshot.step} has no {name} for it"
                tensor.data = data
                continue
            dtype = torch.float64 if wide and data.is_floating_point() else data.dtype
            tensor.data = kept.to(device=data.device, dtype=dtype, copy=True)

    def _called(self, _module, args, kwargs):
        if self._lacks:
            raise ValueError(self._lacks)
        return (tuple(map(to_wide, args)), to_wide(kwargs)) if self._wide else None
