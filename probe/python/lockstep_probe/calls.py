"""The trainer's collectives, on their way into the records of their step."""

import torch
import torch.distributed as dist

from lockstep_probe import collectives, hashing, model
from lockstep_probe.guard import guarded


class Ledger:
    """Collectives of one step, in their order; `open`: those whose outputs are not hashed yet, by their work."""

    def __init__(self):
        self.calls, self.open = [], {}
        self.given = 0  # elements of floating-point tensors


class Calls:
    """A listener of `collectives`. What the probe itself calls (`probe.inside`) is not the trainer's."""

    def __init__(self, probe):
        self.probe = probe
        self._next = Ledger()  # calls after a step's update, and after step() if that is called, belong to the step that follows

    def listen(self):
        try:
            collectives.install()
            collectives.listen(self)
        except (RuntimeError, AttributeError) as error:
            self.probe._note(f"collectives are not recorded: this torch ({torch.__version__}) has not the hooks for them ({error})")

    def next_ledger(self):
        """For a step that begins."""
        ledger, self._next = self._next, Ledger()
        return ledger

    def begin(self, call):
        if self.probe.prepared and not self.probe.inside:
            self._begin(call)

    @guarded
    def _begin(self, call):
        probe, step = self.probe, self.probe.current
        ledger = step.ledger if step is not None and (step.due or not (step.asked or probe.is_over(step))) else self._next
        if ledger is not self._next and not step.records:
            return
        tensors = call.inputs or call.outputs
        ranks = dist.get_process_group_ranks(call.group)
        everyone = len(ranks) == probe.world_size
        group = "world" if everyone else f"{call.group.group_desc or 'group'} {'-'.join(map(str, ranks))}"
        if ledger is self._next and step is not None and not step.late:
            step.late = self._exchanges_parameters(ledger, tensors)
        # Calls of one tag are compared with each other: other operations, types and groups are other calls.
        kind = f" {str(tensors[0].dtype).removeprefix('torch.')}" if tensors else ""
        tag = call.tag or f"{call.op}{kind}{'' if everyone else f' of {group}'}"
        from_reducer = probe.gradients.in_backward and call.op == "all_reduce" and call.reduction is None and bool(probe._wrappers)
        if from_reducer and tensors[0].is_floating_point():
            group, tag, call.reduction = ("gradients" if everyone else f"gradients {group}"), f"bucket {step.buckets}", "sum"
            step.buckets += 1
        elif from_reducer:
            group, call.reduction = "control", "sum"
        shape = tuple(tensors[0].shape) if len(tensors) == 1 else (sum(t.numel() for t in tensors),)
        if call.root >= 0 and not everyone and call.root < len(ranks):
            call.root = ranks[call.root]
        call.slot, call.tag = len(ledger.calls), ledger
        dtype = hashing.dtype_of(tensors[0]) if tensors else 0
        ledger.calls.append([call, group, tag, self._hash(call.inputs), [], dtype, shape, from_reducer])

    def _exchanges_parameters(self, ledger, tensors):
        """After an update: parameters themselves, or as much as all of them, such as one flat tensor of them."""
        ledger.given += sum(t.numel() for t in tensors if t.is_floating_point())
        parameters = self.probe.parameters.tensors()
        held = {model.held(p).untyped_storage().data_ptr() for p in parameters}
        given = {t.untyped_storage().data_ptr() for t in tensors if t.layout is torch.strided}
        return ledger.given >= sum(p.numel() for p in parameters) or not held.isdisjoint(given)

    def _hash(self, tensors):
        with self.probe.recorder.together():
            return list(map(self.probe.recorder.hash_of, tensors))

    def issued(self, call):
        if call.slot is None or self.probe.is_off:
            return
        if call.op == "barrier" or not call.outputs:
            call.outputs = call.work = None
            return
        call.tag.open[id(call.work)] = call

    def finished(self, work):
        """Somebody has waited for it."""
        step = self.probe.current
        for ledger in (step.ledger if step is not None else None, self._next):
            call = ledger.open.pop(id(work), None) if ledger is not None else None
            if call is not None:
                self._hash_output(ledger, call)

    @guarded
    def _hash_output(self, ledger, call):
        ledger.calls[call.slot][4] = self._hash(call.outputs)
        call.outputs = call.work = None

    def finish(self, ledger, wanted=lambda _call: True):
        """Of works that nobody has waited for in Python."""
        for key, call in [each for each in ledger.open.items() if wanted(each[1])]:
            del ledger.open[key]
            if call.op not in ("send", "recv"):
                call.work.wait()
            elif not call.work.is_completed():
                continue
            self._hash_output(ledger, call)

    @guarded
    def before_forward(self, ledger):
        """DistributedDataParallel has asked for rank 0's buffers, and the forward pass may write into them."""
        self.finish(ledger, lambda call: call.op == "broadcast")

    def records(self, ledger):
        self.finish(ledger)
        # Without lines a rank begins with its first forward pass, before which another rank's messages may have come.
        left_out = ("send", "recv") if self.probe.tier == "zero" and self.probe.steps_done == 1 else ()
        return [self.probe.recorder.collective(*call[:-1]) for call in ledger.calls if call[0].op not in left_out]
