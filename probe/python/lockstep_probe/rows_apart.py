"""A replayed step's loss taken apart: what the trainer's function gives for its rows one by one, in pairs and together.

From these `lockstep compare` knows what each row loses and counts, or that the loss couples rows (negatives, statistics of the batch), and so how ranks
must have combined their rows to get the losses that they got. Traces lie beside the replays, in .../rows.
"""

import contextlib
import os

import torch
import torch.distributed as dist

from lockstep_probe import hashing, trace_file
from lockstep_probe.recorder import Recorder

MOST_STEPS, MOST_ROWS = 2, 64


class TalksToOthers(Exception):
    """The function called a collective that cannot be answered without the other ranks."""


class _Silence:
    """A listener that lets no collective out: ranks are not in step while they measure."""

    def begin(self, call):
        raise TalksToOthers(call.op)


class _Done:
    """The work of a collective that is answered at once."""

    def wait(self, *_args, **_kwargs):
        return True

    def is_completed(self):
        return True


def _size(group):
    return dist.get_world_size(group)


def _answer(async_op):
    return _Done() if async_op else None


def _all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    with torch.no_grad():
        if op == dist.ReduceOp.SUM:
            tensor.mul_(_size(group))
        elif op == dist.ReduceOp.PRODUCT:
            tensor.pow_(_size(group))
    return _answer(async_op)


def _all_gather(tensor_list, tensor, group=None, async_op=False):
    with torch.no_grad():
        for each in tensor_list:
            each.copy_(tensor)
    return _answer(async_op)


def _all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    with torch.no_grad():
        output_tensor.copy_(torch.cat([input_tensor.reshape(-1)] * _size(group)).view_as(output_tensor))
    return _answer(async_op)


def _nothing(*_args, async_op=False, **_kwargs):
    return _answer(async_op)


def _only_backward(name):
    """Gradients are not looked at: there any answer will do."""

    def answer(*_args, async_op=False, **_kwargs):
        if not _backward.runs:
            raise TalksToOthers(name)
        return _answer(async_op)

    return answer


class _Backward:
    runs = False


_backward = _Backward()
_ALIKE = {
    "all_reduce": _all_reduce, "all_gather": _all_gather, "all_gather_into_tensor": _all_gather_into_tensor, "broadcast": _nothing, "barrier": _nothing,
    **{name: _only_backward(name) for name in ("scatter", "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single")},
}  # fmt: skip


@contextlib.contextmanager
def _among_equals():
    """Collectives answer as if every rank had the same; others raise TalksToOthers."""
    from lockstep_probe import collectives

    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    silence, was = _Silence(), {name: getattr(dist, name) for name in _ALIKE}
    collectives.listen(silence)
    for name, function in _ALIKE.items():
        setattr(dist, name, function)
    try:
        yield
    finally:
        for name, function in was.items():
            setattr(dist, name, function)
        collectives.leave(silence)


@contextlib.contextmanager
def _roots():
    """On what backward() is called."""
    heard, backward = [], torch.Tensor.backward

    def listening(tensor, *args, **kwargs):
        heard.append(tensor.detach())
        _backward.runs = True
        try:
            return backward(tensor, *args, **kwargs)
        finally:
            _backward.runs = False

    torch.Tensor.backward = listening
    try:
        yield heard
    finally:
        torch.Tensor.backward = backward


def _loss(step_on, subject, ids):
    """Of a forward and backward pass. Raises what the function raises, and ValueError if it tells no loss."""
    for each in subject.inner:
        each.zero_grad(set_to_none=True)
    with _roots() as roots:
        loss = step_on(subject.called, list(ids))
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return float(loss.detach())
    if not roots or any(root.numel() != 1 for root in roots):
        raise ValueError("it returns no loss, and calls backward() on none")
    return sum(float(root) for root in roots)


def _without_reducer(called):
    stack = contextlib.ExitStack()
    for each in called if isinstance(called, (list, tuple)) else [called]:
        if isinstance(each, torch.nn.parallel.DistributedDataParallel):
            each.require_forward_param_sync = False
            stack.enter_context(each.no_sync())
    return stack


class _Measured:
    """Losses of sets of rows, each from the step's own state; None where the function does not take the set."""

    def __init__(self, step_on, subject, snapshot):
        self._step_on, self._subject, self._snapshot = step_on, subject, snapshot
        self._has_buffers = any(True for each in subject.inner for _ in each.buffers())

    def of(self, ids):
        if self._has_buffers:
            self._subject.load(self._snapshot)
        try:
            return _loss(self._step_on, self._subject, ids)
        except TalksToOthers:
            raise
        except Exception:  # noqa: BLE001  a batch normalisation takes no single row, for instance
            return None

    def list_of(self, sets):
        losses = []
        for ids in sets:
            losses.append(self.of(ids))
            if losses[-1] is None:
                return None
        return losses


def _records(recorder, measured, ids, dtype):
    together = measured.of(ids)
    if together is None or together != measured.of(ids):
        return []  # what it draws itself is not the rows'
    singles = measured.list_of([i] for i in ids)
    pairs = None if singles is None else measured.list_of([ids[0], i] for i in ids[1:])
    records = [recorder.scalar("loss", "together", together)]
    for name, values, of in (("singles", singles, ids), ("pairs", pairs, ids[1:])):
        if values is not None:
            records.append(recorder.tensor("loss", name, torch.tensor(values, dtype=dtype), ids=of, values=True))
    return records


def _own_losses(step_on, subject, snapshots, mine):
    """Of each step, of this rank's rows; ranks together."""
    losses = []
    with _without_reducer(subject.called):
        for snapshot in snapshots:
            subject.load(snapshot)
            losses.append(_loss(step_on, subject, mine(snapshot)))
    return losses


def write(probe, folder, step_on, subject, found, mine):
    """Of the first of the replayed steps. `mine(snapshot)`: this rank's rows of it. Ranks call it together. Raises what the function raises."""
    snapshots = [s for s in found if 1 < len(s.ids) <= MOST_ROWS and len(set(s.ids)) == len(s.ids)][:MOST_STEPS]
    hashes = hashing.load()
    recorder = Recorder(hashes, "full", True)
    dtype = next((p.dtype for each in subject.inner for p in each.parameters()), torch.float32)
    losses = _own_losses(step_on, subject, snapshots, mine)
    steps = [[recorder.samples(mine(s)), recorder.scalar("loss", "own", loss)] for s, loss in zip(snapshots, losses)]
    with _among_equals(), _without_reducer(subject.called), contextlib.suppress(TalksToOthers):
        for snapshot, records in zip(snapshots, steps):
            subject.load(snapshot)
            records += _records(recorder, _Measured(step_on, subject, snapshot), list(snapshot.ids), dtype)
    writer = trace_file.Writer(os.path.join(folder, f"rank-{probe.rank}.trace"), hashes)
    writer.header(trace_file.header_of(os.path.join(probe.settings.out, f"rank-{probe.rank}.trace")))
    for snapshot, records in zip(snapshots, steps):
        writer.step(snapshot.step, records)
    writer.finish(whole=True)
