"""What training has led to: parameters, buffers, averages, the optimizers' state, as they are now."""

import torch

from lockstep_probe import model
from lockstep_probe.trace_file import Placement


class State:
    """`average`: the module with the parameters' averages, or None."""

    def __init__(self, probe, average):
        self.probe, self.average = probe, average

    def _record(self, phase, name, tensor, alike, values, placement=None):
        placement = placement or model.placement_of(tensor)
        part = model.held(tensor.detach())
        return self.probe.recorder.tensor(phase, name, part, alike=alike and placement is None, placement=placement, values=values)

    def buffers(self):
        for prefix, name, buffer in model.named(self.probe.models, "named_buffers"):
            if buffer is not None:
                yield prefix + name, buffer

    def _weights(self, phase, values):
        records = [self._record(phase, w.name, w.parameter, w.alike, values) for w in self.probe.parameters]
        return records + [self._record(phase, "buffer/" + name, buffer, False, values) for name, buffer in self.buffers()]

    def _averages(self, values):
        if self.average is None:
            return
        by_name = {w.name: w.alike for w in self.probe.parameters}
        for name, p in getattr(self.average, "module", self.average).named_parameters():
            if name in by_name:
                yield self._record("averaged weights", name, p, by_name[name], values)

    def after_update(self, values, optimizers):
        records = [*self._weights("parameters", values), *self._averages(values)]
        return records + self._of_optimizers("optimizer state", values) if optimizers else records

    def before_step(self):
        """Everything that a step begins with, with values."""
        return self._weights("snapshot", True) + self._of_optimizers("snapshot", True)

    def kept(self):
        """Copies of parameters and buffers, by the names of a snapshot."""
        found = {w.name: model.held(w.parameter.detach()).clone() for w in self.probe.parameters}
        return found | {"buffer/" + name: buffer.detach().clone() for name, buffer in self.buffers()}

    def _of_optimizers(self, phase, values):
        records, counts = [], set()
        for optimizer in self.probe.optimizers:
            for p in (p for group in optimizer.param_groups for p in group["params"]):
                watched = self.probe.parameters.of(p)
                for key, value, placement in self._state_of(optimizer, p) if watched else ():
                    if key in model.MOMENTS and isinstance(value, torch.Tensor):
                        records.append(self._record(phase, f"{model.MOMENTS[key]}/{watched.name}", value, watched.alike, values, placement))
                    elif key == "step":
                        counts.add(int(value))
        updates = max(counts) if counts else self.probe.updates.number()
        return [*records, self.probe.recorder.scalar(phase, "updates", updates, alike=True)]

    @staticmethod
    def _state_of(optimizer, p):
        """(key, value, placement) of a parameter. Of an optimizer whose ranks hold other parameters' state each, the owner has all of the
        whole tensor, and the others an empty part behind it, so that all have the same order."""
        state = model.inner_optimizer(optimizer).state
        if model.inner_optimizer(optimizer) is optimizer:
            yield from ((key, value, None) for key, value in state.get(p, {}).items())
        elif p in state:
            whole = Placement(tuple(p.shape), (0,) * p.dim(), True)
            yield from ((key, value, whole if value.shape == p.shape else None) for key, value in state[p].items())
        elif p.dim() and state:
            behind = Placement(tuple(p.shape), (p.shape[0], *(0 for _ in p.shape[1:])), True)
            yield from ((key, p.detach()[:0], behind) for key in next(iter(state.values())) if key in model.MOMENTS)
