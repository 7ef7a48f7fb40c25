"""A step's gradients: as a rank computes them, as they are reduced, as clipping leaves them, and the parts of micro-steps."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lockstep_probe import model
from lockstep_probe.guard import guarded
from lockstep_probe.recorder import hash_in

_engine = torch.autograd.Variable._execution_engine


class Gradients:
    """`clip_norm`: the limit that the trainer's first clipping takes."""

    def __init__(self, probe):
        self.probe, self.clip_norm, self.in_backward = probe, None, False
        self._accumulates = 1  # backward passes of a step, as far as is known
        self._adds_up = False  # has a step shown that the last backward pass leaves no sum of the rank's own?
        self.ends_held = False  # or that no backward pass of a step is reduced by the wrapper?

    # Hooks of the backward pass.

    @guarded
    def added(self, watched, gradient):
        """What a backward pass adds to a parameter's gradient, before it is added."""
        step, p = self.probe.current, watched.parameter
        # DistributedDataParallel passes none for a parameter that nothing used.
        if gradient is None or step is None or not step.records or self.probe.is_over(step) or watched.unsharded is not None or id(p) in step.updated:
            return
        keeps = self.keeps(watched)
        if watched.passes is not None and (p.grad is None or (keeps and p.grad.layout is torch.strided and not model.held(p.grad).any())):
            # What was there has been taken into a buffer of the trainer's; or, where an optimizer has made its update since, dropped.
            watched.taken = watched.passes == len(step.stepped)
            if not watched.taken:
                watched.sum, watched.parts = None, {}
        watched.passes = len(step.stepped)
        if keeps or self._adds_up:
            if watched.sum is None and not watched.taken and p.grad is not None:
                watched.sum = model.held(p.grad).detach()  # what the step before has left is added to
            self._add(watched, self._part(gradient, p))

    @guarded
    def accumulated(self, watched, parameter):
        step = self._backward_runs()
        if not step.records or watched.unsharded is not None or id(parameter) in step.updated:
            return
        watched.held = self.probe.is_held_back(parameter)
        watched.synced |= not watched.held and bool(self.probe._wrappers)
        if parameter.grad is not None and not watched.held:
            # Where each micro-step is reduced, this holds the mean of earlier ones and the own last: their mean has the reduced gradient's bits.
            watched.local = self.record("local gradients", watched, parameter.grad)

    @guarded
    def added_unsharded(self, watched, gradient):
        """FSDP2's whole gradient of this rank, before the reduction."""
        step = self._backward_runs()
        if not step.records or id(watched.parameter) in step.updated:
            return
        gradient = self._part(gradient, watched.unsharded)
        if self.keeps(watched) or self._accumulates > 1:
            self._add(watched, gradient)
        elif watched.local is None:
            watched.local = self._record_unsharded(watched, gradient)
        else:
            watched.local = None  # used twice, or an accumulation that began in this step: the sum is not known
            self._accumulates = max(self._accumulates, 2)

    def keeps(self, watched):
        return self.probe.current.keeps and self.probe.values.of(watched.name)

    def _add(self, watched, gradient):
        """To the rank's own sum, of tensors that are small enough for a copy; and, at steps that keep values, to the part of this micro-step."""
        values, micro = self.probe.values, self.probe.current.backwards
        if self.keeps(watched) and watched.parts is not None:
            watched.add_part(micro, gradient)
            if not values.of_parts(watched.name, micro + 1):
                watched.parts = None
        if self.keeps(watched) or values.of_parts(watched.name, 1):
            if watched.taken:  # into a buffer that may be wider
                gradient = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
            watched.sum = gradient.clone() if watched.sum is None else watched.sum + gradient

    def is_by_hand(self, watched):
        """Does no wrapper reduce it? One of a part of the model, or that ignores parameters, leaves the others to the program."""
        probe, p = self.probe, watched.parameter
        if probe.by_hand or probe.world_size == 1 or not probe._wrapped or model.is_sharded(p):
            return probe.by_hand
        return watched.ignored or not any(id(p) in held for _, held in probe._wrapped)

    def _backward_runs(self):
        step = self.probe.open()
        if not self.in_backward:
            self.in_backward = True
            step.count_draws(self.probe.recorder.hashes.xxh3)
            self.probe.beat("backward")
            # DistributedDataParallel queues its own callback during the backward pass; one that is queued from a callback comes after it.
            _engine.queue_callback(lambda: _engine.queue_callback(self._backward_ends))
        return step

    @guarded
    def _backward_ends(self):
        probe, step = self.probe, self.probe.current
        self.in_backward = False
        step.backwards += 1
        probe.calls.finish(step.ledger, lambda call: step.ledger.calls[call.slot][7])  # the Reducer's, which its own callback has waited for
        if not step.records:
            return
        step.rates = {id(o): probe.updates.rates(o) for o in probe.optimizers}
        with probe.recorder.together():
            self._leave_records()
        if not probe.is_held_back():
            probe.beat("update")

    def _leave_records(self):
        """Of what the backward pass leaves in the parameters."""
        probe, step = self.probe, self.probe.current
        for watched in probe.parameters:
            gradient = watched.parameter.grad
            if gradient is None or id(watched.parameter) in step.updated:
                continue
            if watched.taken and gradient.layout is torch.strided:
                watched.left = StorageWeakRef(model.held(gradient).untyped_storage())
            if watched.held:
                if self.ends_held and not watched.synced:
                    watched.local = self.record("local gradients", watched, gradient)
                continue
            if watched.unsharded is not None and watched.sum is not None:
                watched.local = self._record_unsharded(watched, watched.sum)
            if not self.is_by_hand(watched):
                watched.reduced = self.record("reduced gradients", watched, gradient)

    @guarded
    def settle(self):
        """Before clipping, or the update: are gradients what the last backward pass has left? A trainer may add up micro-steps in a buffer of its
        own, and hand that over; or the last micro-step is the rank's own while an earlier one was reduced."""
        step = self.probe.current
        if step is None or not step.records:
            return
        for watched in self.probe.parameters:
            gradient, held = watched.parameter.grad, watched.held and watched.parameter.grad is not None
            if id(watched.parameter) in step.updated or watched.unsharded is not None:
                continue
            handed_over = watched.taken and (
                gradient is None or watched.left is None or gradient.layout is not torch.strided or model.held(gradient).untyped_storage()._cdata != watched.left.cdata)  # fmt: skip
            if not handed_over and not held:
                continue
            watched.taken = watched.held = False
            if not handed_over and not watched.synced:
                self.ends_held = True
            else:
                self._adds_up, watched.local = True, None
            if watched.local is None and watched.sum is not None:
                watched.local = self.record("local gradients", watched, watched.sum)
            watched.lost = watched.local is None
            watched.reduced = None if gradient is None else self.record("reduced gradients", watched, gradient)
        self._settle_copies()

    def _settle_copies(self):
        """Of parameters that are trained by copies, such as main parameters in float32: reduced is what the copy takes."""
        for watched, copy in self.probe.parameters.copies():
            if watched.local is not None and not watched.by_copy:
                watched.by_copy, gradient = True, None
                if copy is not None:
                    self.probe.parameters.of(copy).by_copy, gradient = True, copy.grad
                watched.reduced = None if gradient is None else self.record("reduced gradients", watched, gradient)

    # Records.

    def record(self, phase, watched, gradient):
        part, placement = self._part(gradient, watched.parameter), model.placement_of(watched.parameter)
        alike = phase != "local gradients" and watched.alike and placement is None
        part = part if phase == "applied gradients" else self._unscaled(part)
        return self.probe.recorder.tensor(phase, watched.name, part, alike=alike, placement=placement, values=self.keeps(watched))

    def _record_unsharded(self, watched, gradient):
        placement = model.placement_of(watched.unsharded)
        return self.probe.recorder.tensor("local gradients", watched.name, self._unscaled(gradient), placement=placement, values=self.keeps(watched))

    def _part(self, gradient, parameter):
        """The rank's part of a gradient; partial sums of tensor-parallel ranks are added up first, as the update will."""
        if model.is_sharded(gradient) and any(kind.is_partial() for kind in gradient.placements):
            gradient = gradient.redistribute(placements=parameter.placements)
        return model.held(gradient).detach()

    def _unscaled(self, gradient):
        scale = self.probe.current.scale
        return gradient if scale == 1 else gradient.detach() / scale

    def of_step(self, step):
        """Local gradients, their parts, reduced gradients, in the order of parameters."""
        self._accumulates = max(self._accumulates, step.backwards)
        for watched in self.probe.parameters:
            if watched.local is None and watched.reduced is not None and not watched.lost and not self.is_by_hand(watched):
                # This rank has not used it, and others have: DistributedDataParallel adds nothing for it.
                if watched.unsharded is None and not model.is_sharded(watched.parameter):
                    watched.local = self.record("local gradients", watched, torch.zeros_like(watched.parameter))
            if watched.local is not None:
                step.first.append(watched.local)
                if step.backwards > 1 and watched.parts:
                    self._parts(step, watched)
        step.first += [w.reduced for w in self.probe.parameters if w.reduced is not None]

    def _parts(self, step, watched):
        whole = sum(watched.parts.values())
        for micro in range(step.backwards):
            part = watched.parts.get(micro)
            part = self._unscaled(torch.zeros_like(whole) if part is None else part)
            dot = float((part.double() * self._unscaled(whole).double()).sum())
            step.first.append(self.probe.recorder.tensor("gradient parts", f"micro {micro}/{watched.name}", part, dot=dot, values=True))

    # What changes gradients after the backward pass.

    @guarded
    def on_pipeline_scale(self, parameters, factor):
        """A pipeline schedule divides the sum of its micro-batches' gradients once they are all there."""
        if self.probe.current is None or not self.probe.current.records:
            return
        for watched in filter(None, map(self.probe.parameters.of, parameters)):
            gradient = watched.parameter.grad
            if gradient is None or watched.local is None:
                continue
            watched.parts = watched.parts and {micro: part / factor for micro, part in watched.parts.items()}
            watched.sum = None if watched.sum is None else watched.sum / factor
            if watched.unsharded is not None and watched.sum is not None:
                watched.local = self._record_unsharded(watched, watched.sum)
            elif not self.probe._wrappers:
                watched.local = self.record("local gradients", watched, gradient)
            else:
                watched.local = None if watched.sum is None else self.record("local gradients", watched, watched.sum)
            if watched.reduced is not None:
                watched.reduced = self.record("reduced gradients", watched, gradient)

    @guarded
    def on_clip(self, parameters, max_norm, norm):
        probe, step = self.probe, self.probe.current
        if step is None or not any(map(probe.parameters.of, parameters)):
            return
        self.settle()
        if probe.world_size > 1 and step.records:
            self.clipped_too_early()
            self.reduced_by_hand(parameters)
        if max_norm is None or probe.is_over(step):
            return
        norm = probe.recorder.number(norm.full_tensor() if model.is_sharded(norm) else norm)
        trained = {id(w.parameter) for w in probe.parameters if w.parameter.grad is not None}
        # Several calls with one norm, as DTensors and plain tensors take, are one clipping.
        clipped = next((each for other, each in step.clipped if float(other) == float(norm)), None)
        if clipped is None:
            clipped = set()
            step.clipped.append((norm, clipped))
        clipped.update(map(id, parameters))
        if trained <= clipped:
            step.norm = norm
            if self.clip_norm is None and 0 < max_norm < float("inf"):
                self.clip_norm = max_norm

    @guarded
    def after_clip(self, parameters):
        probe, step = self.probe, self.probe.current
        if step is None or not step.records or not probe.by_hand or not any(map(probe.parameters.of, parameters)):
            return
        for watched in probe.parameters:
            gradient = watched.parameter.grad
            if gradient is not None and watched.local is not None and watched.reduced is not None:
                if hash_in(watched.local) == hash_in(watched.reduced):
                    watched.clipped = hash_in(self.record("local gradients", watched, gradient))

    def reduced_by_hand(self, parameters):
        """What clipping or the optimizer takes, of gradients that no wrapper has reduced. Others, such as those that another model's backward pass
        leaves, are dropped, or reduced elsewhere."""
        probe, step = self.probe, self.probe.current
        for watched in filter(None, map(probe.parameters.of, parameters)):
            gradient = watched.parameter.grad
            if watched.reduced is None and gradient is not None and id(watched.parameter) not in step.updated and not watched.by_copy:
                watched.reduced = self.record("reduced gradients", watched, gradient)

    def clipped_too_early(self):
        """Were a trainer's own gradients clipped, and reduced afterwards? Then what it has reduced is what comes next."""
        for watched in self.probe.parameters:
            gradient = watched.parameter.grad
            if watched.clipped is None or gradient is None:
                continue
            if hash_in(self.record("local gradients", watched, gradient)) != watched.clipped:
                watched.reduced = self.record("reduced gradients", watched, gradient)
            watched.clipped = None
