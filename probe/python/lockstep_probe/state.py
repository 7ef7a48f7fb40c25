"""What training has led to: parameters, buffers, averages, the optimizers' state, as they are now."""

import torch

from lockstep_probe import model
from lockstep_probe.recorder import hash_in
from lockstep_probe.trace_file import Placement


class State:
    """`average`: the module with the parameters' averages, such as swa_utils.AveragedModel, or None."""

    def __init__(self, probe, average):
        self.probe, self.average_module = probe, getattr(average, "module", average)
        self.held, self.followed = None, set()  # what the step began with besides, where that is looked for, and what it has found before

    def _record(self, phase, name, tensor, alike, values, placement=None):
        if phase == "snapshot" and not self._keeps(name):
            return None
        placement = placement or model.placement_of(tensor)
        part = model.held(tensor.detach())
        return self.probe.recorder.tensor(phase, name, part, alike=alike and placement is None, placement=placement, values=values and self._keeps(name))

    def _keeps(self, name):
        for start in ("first_moment/", "second_moment/", "average/"):
            name = name.removeprefix(start)
        return self.probe.values.of(name)

    def costs(self):
        """Bytes of all values of a step by name: those of parameters count for their gradients, moments and averages too."""
        averaged = {name for name, _, _ in self._averages()}
        found = {}
        for w in self.probe.parameters:
            size = w.parameter.element_size()
            weights = (5 if w.name in averaged else 2) * size
            found[w.name] = w.parameter.numel() * (weights + (3 * size + 4 * max(size, 4) if w.parameter.requires_grad else 0))
        copies = [("buffer/" + name, 2 * tensor.numel() * tensor.element_size()) for name, tensor in self.buffers()]
        module = self.average_module
        copies += [("buffer/" + name, b.numel() * b.element_size()) for name, b in (module.named_buffers() if module is not None else ())]
        for name, size in copies:
            found[name] = found.get(name, 0) + size
        return found

    def buffers(self):
        for prefix, name, buffer in model.named(self.probe.models, "named_buffers"):
            if buffer is not None:
                yield prefix + name, buffer

    def _weights(self, phase, values):
        with self.probe.recorder.together():
            records = [self._record(phase, w.name, w.parameter, w.alike, values) for w in self.probe.parameters]
            buffers = [self._record(phase, "buffer/" + name, buffer, False, values) for name, buffer in self.buffers()]
            return records + buffers

    def _averages(self):
        """(name, tensor, alike) of the averages of parameters."""
        by_name = {w.name: w.alike for w in self.probe.parameters}
        named = self.average_module.named_parameters() if self.average_module is not None else ()
        return [(name, p, by_name[name]) for name, p in named if name in by_name]

    def averages_in_snapshot(self):
        """The same with its buffers and a snapshot's names: a trainer whose forward pass calls the module begins its steps with them."""
        found = self._averages()
        if self.average_module is not None:
            found += [("buffer/" + name, buffer, False) for name, buffer in self.average_module.named_buffers()]
        elif self.held is not None and not self.probe.settings.stop:
            found = [(name, tensor, False) for name, tensor in self.held.averages]
        return [("average/" + name, tensor, alike) for name, tensor, alike in found]

    def hashes(self):
        with self.probe.recorder.together():
            records = [self._record("parameters", w.name, w.parameter, w.alike, False) for w in self.probe.parameters]
        return list(map(hash_in, records))

    def after_update(self, values, optimizers):
        records = self._weights("parameters", values)
        records += [self._record("averaged weights", name, p, alike, values) for name, p, alike in self._averages()]
        return records + self._of_optimizers("optimizer state", values) if optimizers else records

    def before_step(self):
        """Everything that a step begins with, as far as values are kept."""
        averages = [self._record("snapshot", *each, True) for each in self.averages_in_snapshot()]
        return [record for record in self._weights("snapshot", True) + averages + self._of_optimizers("snapshot", True) if record]

    def _of_optimizers(self, phase, values):
        if self.probe.updates.made_elsewhere:
            return []
        records = [self._record(phase, name, value, alike, values, placement) for name, value, alike, placement in self.moments()]
        counts = {int(value) for _, key, value, _ in self._states() if key == "step"}
        updates = max(counts) if counts else self.probe.updates.number()
        return [*records, self.probe.recorder.scalar(phase, "updates", updates, alike=True)]

    def moments(self):
        """(name, tensor, alike, placement) of the optimizers' state, with a snapshot's names."""
        for watched, key, value, placement in self._states():
            if key in model.MOMENTS and isinstance(value, torch.Tensor):
                yield f"{model.MOMENTS[key]}/{watched.name}", value, watched.alike, placement

    def _states(self):
        for optimizer in self.probe.optimizers:
            for p in model.parameters_of(optimizer):
                watched = self.probe.parameters.of(p)
                yield from ((watched, *each) for each in self._state_of(optimizer, p) if watched)

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
