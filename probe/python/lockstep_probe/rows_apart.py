"""A replayed step taken apart: the loss, and the gradient's slope, that the trainer's function gives for its rows one by one, in pairs and together.

The slope is the gradient's dot product with a fixed random direction: as a loss does, it adds up over rows, and tells them apart where all lose the same. From these `lockstep compare` knows what each row loses and counts, or that the loss couples rows (negatives, statistics of the batch), and so how ranks
must have combined their rows to get the losses that they got. Traces lie beside the replays, in .../rows.
"""

import contextlib
import os
import zlib

import torch
import torch.distributed as dist

from lockstep_probe import hashing, model, trace_file
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


def _of_backward(name):
    """What a gather's gradient needs: each rank has for each other one what that one has for it, so that all that others would send is here."""

    def raising(*_args, **_kwargs):
        raise TalksToOthers(name)

    answer = {
        "reduce_scatter": lambda output, inputs, *_args: output.copy_(sum(inputs)),
        "reduce_scatter_tensor": lambda output, given, *_args: output.copy_(given.reshape(-1, *output.shape).sum(0)),
        "all_to_all": lambda outputs, inputs, *_args: [a.copy_(b) for a, b in zip(outputs, inputs)],
        "all_to_all_single": lambda output, given, *_args: output.copy_(given) if output.shape == given.shape else raising(),
    }.get(name, raising)

    def called(*args, async_op=False, **_kwargs):
        with torch.no_grad():
            (answer if _backward.runs else raising)(*args)
        return _answer(async_op)

    return called


class _Backward:
    runs = False


_backward = _Backward()
_ALIKE = {
    "all_reduce": _all_reduce, "all_gather": _all_gather, "all_gather_into_tensor": _all_gather_into_tensor, "broadcast": _nothing, "barrier": _nothing,
    **{name: _of_backward(name) for name in ("scatter", "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single")},
}  # fmt: skip


@contextlib.contextmanager
def _among_equals():
    """Collectives answer as if every rank had the same; others raise TalksToOthers."""
    import torch.distributed.nn.functional as functional

    from lockstep_probe import collectives

    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    silence, was = _Silence(), {name: getattr(dist, name) for name in _ALIKE}
    collectives.listen(silence)
    for name, function in _ALIKE.items():
        setattr(dist, name, function)
    gathered = functional._AllGather.backward  # with Gloo by several scatters, of which each has another rank's gradients
    functional._AllGather.backward = staticmethod(lambda _ctx, *gradients: (None, sum(gradients)))
    try:
        yield
    finally:
        functional._AllGather.backward = gathered
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


class _Function:
    """The trainer's function on a model; each call gives the loss and the slope."""

    def __init__(self, step_on, subject):
        self._step_on, self._subject, self.called = step_on, subject, subject.called
        self._parameters = [(p, self._direction(prefix + name, model.held(p))) for prefix, name, p in model.named(subject.inner, "named_parameters")]

    @staticmethod
    def _direction(name, parameter):
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter)

    def __call__(self, ids):
        """Of a forward and backward pass. Raises what the function raises, and ValueError if it tells no loss."""
        for each in self._subject.inner:
            each.zero_grad(set_to_none=True)
        with _roots() as roots:
            loss = self._step_on(self.called, list(ids))
        slope = sum(float((model.held(p.grad) * direction).sum()) for p, direction in self._parameters if p.grad is not None)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return float(loss.detach()), slope
        if not roots or any(root.numel() != 1 for root in roots):
            raise ValueError("it returns no loss, and calls backward() on none")
        return sum(float(root) for root in roots), slope


def _is_wrapped(module):
    return isinstance(module, torch.nn.parallel.DistributedDataParallel)


def _without_static(called):
    """What is called without the other ranks: a wrapper of a static graph reduces, whatever it is told."""
    if isinstance(called, (list, tuple)):
        return type(called)(map(_without_static, called))
    return called.module if _is_wrapped(called) and called.static_graph else called


def _without_reducer(called):
    stack = contextlib.ExitStack()
    for each in called if isinstance(called, (list, tuple)) else [called]:
        if _is_wrapped(each) and not each.static_graph:
            each.require_forward_param_sync = False
            stack.enter_context(each.no_sync())
    return stack


class _Measured:
    """Of sets of rows, each from the step's own state; None where the function does not take the set."""

    def __init__(self, function, subject, snapshot):
        self._function, self._subject, self._snapshot = function, subject, snapshot
        self._has_buffers = any(True for each in subject.inner for _ in each.buffers())

    def of(self, ids):
        if self._has_buffers:
            self._subject.load(self._snapshot)
        try:
            return self._function(ids)
        except TalksToOthers:
            raise
        except Exception:  # noqa: BLE001  a batch normalisation takes no single row, for instance
            return None

    def list_of(self, sets):
        found = []
        for ids in sets:
            found.append(self.of(ids))
            if found[-1] is None:
                return None
        return found


def _records(recorder, measured, ids, dtype):
    together = measured.of(ids)
    if together is None or together != measured.of(ids):
        return []  # what it draws itself is not the rows'
    singles = measured.list_of([i] for i in ids)
    pairs = None if singles is None else measured.list_of([ids[0], i] for i in ids[1:])
    records = _numbers(recorder, "together", together)
    for name, found, of in (("singles", singles, ids), ("pairs", pairs, ids[1:])):
        for phase, values in zip(("loss", "local gradients"), zip(*found or [])):
            records.append(recorder.tensor(phase, name, torch.tensor(values, dtype=dtype), ids=of, values=True))
    return records


def _numbers(recorder, name, pair):
    return [recorder.scalar(phase, name, value) for phase, value in zip(("loss", "local gradients"), pair)]


def _own(function, subject, snapshots, mine, together):
    """Of each step, of this rank's rows; ranks together, and none goes on where another one fails."""
    found, problem = [], None
    with _without_reducer(subject.called):
        for snapshot in snapshots:
            subject.load(snapshot)
            try:
                found.append(function(mine(snapshot)))
            except Exception as error:  # noqa: BLE001  the user's own function
                problem = f"{type(error).__name__}: {error}"
            if problem := together(problem):
                raise ValueError(problem)
    return found


def write(probe, folder, step_on, subject, found, mine, together):
    """Of the first of the replayed steps. `mine(snapshot)`: this rank's rows of it; `together(problem)`: the first rank's problem. Ranks call it
    together. Raises what the function raises."""
    snapshots = [s for s in found if 1 < len(s.ids) <= MOST_ROWS and len(set(s.ids)) == len(s.ids)][:MOST_STEPS]
    hashes, function = hashing.load(), _Function(step_on, subject)
    recorder = Recorder(hashes, "full", True)
    dtype = next((p.dtype for each in subject.inner for p in each.parameters()), torch.float32)
    own = _own(function, subject, snapshots, mine, together)
    steps = [[recorder.samples(mine(s)), *_numbers(recorder, "own", pair)] for s, pair in zip(snapshots, own)]
    function.called = _without_static(subject.called)
    with _among_equals(), _without_reducer(function.called), contextlib.suppress(TalksToOthers):
        for snapshot, records in zip(snapshots, steps):
            subject.load(snapshot)
            records += _records(recorder, _Measured(function, subject, snapshot), list(snapshot.ids), dtype)
    writer = trace_file.Writer(os.path.join(folder, f"rank-{probe.rank}.trace"), hashes)
    writer.header(trace_file.header_of(os.path.join(probe.settings.out, f"rank-{probe.rank}.trace")))
    for snapshot, records in zip(snapshots, steps):
        writer.step(snapshot.step, records)
    writer.finish(whole=True)
