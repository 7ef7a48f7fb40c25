"""Every c10d operation of the process, the Reducer's too: kernels at the dispatcher's autograd keys that record and pass on.

The tensors, their bits and the order of calls stay as they are. Outputs are hashed when somebody waits for the work; of calls that nobody
waits for in Python (the Reducer's), at the end of the backward pass.
"""

import threading

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work

_NAMES = {
    "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce", "allgather_": "all_gather",
    "_allgather_base_": "all_gather", "allgather_coalesced_": "all_gather", "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter", "broadcast_": "broadcast", "reduce_": "reduce",
    "scatter_": "scatter", "gather_": "gather", "alltoall_": "all_to_all", "alltoall_base_": "all_to_all",
    "send": "send", "recv_": "recv", "barrier": "barrier",
}  # fmt: skip
# Methods of ProcessGroup whose options hold the reduction, which the dispatcher passes on sealed.
_WITH_OPTIONS = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
_WORDS = {"SUM": "sum", "AVG": "mean", "MAX": "max", "MIN": "min", "PRODUCT": "product"}

_library = None
_listeners = []
_asked = threading.local()


class Call:
    """One operation. `inputs` are hashed already; `outputs` until `finish`."""

    __slots__ = ("group", "inputs", "op", "outputs", "reduction", "root", "slot", "tag", "work")

    def __init__(self, op, group, inputs, outputs, *, root=-1, tag=""):
        self.op, self.group, self.inputs, self.outputs = op, group, inputs, outputs
        self.root, self.tag = root, tag
        self.reduction = getattr(_asked, "reduction", None)
        self.slot = self.work = None


def _word(op):
    for name, word in _WORDS.items():
        if op == getattr(dist.ReduceOp, name):
            return word
    return str(op).rsplit(".", 1)[-1].lower()


def _flat(tensors):
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [t for each in tensors for t in _flat(each)]


def _pieces(tensor, split, size):
    """What goes to, or comes from, each rank of one tensor; without a split equal parts. Flat: the two sides may see it in different shapes."""
    rows = tensor.shape[0] if tensor.dim() else 0
    split = list(split) or [rows // size] * size
    return [piece.reshape(-1) for piece in tensor.detach().split(split)] if rows and sum(split) == rows else [tensor]


def _describe(name, args):
    """Inputs, outputs, process group, root and tag of a call."""
    if name == "alltoall_base_":
        size = ProcessGroup.unbox(args[2]).size()
        return _pieces(args[1], args[4], size), _pieces(args[0], args[3], size), args[2], -1, ""
    if name in ("allreduce_", "allreduce_coalesced_"):
        return _flat(args[0]), _flat(args[0]), args[1], -1, ""
    if name == "broadcast_":
        group = ProcessGroup.unbox(args[1])
        return (_flat(args[0]) if group.rank() == args[2] else []), _flat(args[0]), args[1], args[2], ""
    if name == "reduce_":
        group = ProcessGroup.unbox(args[1])
        return _flat(args[0]), (_flat(args[0]) if group.rank() == args[3] else []), args[1], args[3], ""
    if name in ("scatter_", "gather_"):
        return _flat(args[1]), _flat(args[0]), args[2], args[3], ""
    if name == "send":
        return _flat(args[0]), [], args[1], args[2], str(args[3])
    if name == "recv_":
        return [], _flat(args[0]), args[1], args[2], str(args[3])
    if name == "barrier":
        return [], [], args[1], -1, ""
    return _flat(args[1]), _flat(args[0]), args[2], -1, ""


def _kernel(name):
    op = getattr(torch.ops.c10d, name).default

    def kernel(*args):
        call = None
        if _listeners:
            inputs, outputs, group, root, tag = _describe(name, args)
            call = Call(_NAMES[name], ProcessGroup.unbox(group), inputs, outputs, root=root, tag=tag)
            for listener in list(_listeners):
                listener.begin(call)
        with torch._C._AutoDispatchBelowAutograd():
            result = op(*args)
        if call is not None:
            work = result[-1] if isinstance(result, (tuple, list)) else result
            call.work = Work.unbox(work)
            for listener in list(_listeners):
                listener.issued(call)
        return result

    return kernel


def _with_reduction(method):
    def call(self, *args, **kwargs):
        found = next((a for a in (*args, *kwargs.values()) if hasattr(a, "reduceOp")), None)
        op = found.reduceOp if found is not None else next((a for a in (*args, *kwargs.values()) if isinstance(a, (dist.ReduceOp, dist.ReduceOp.RedOpType))), None)
        _asked.reduction = _word(op) if op is not None else None
        try:
            return method(self, *args, **kwargs)
        finally:
            _asked.reduction = None

    return call


def _waited(method):
    def wait(self, *args, **kwargs):
        result = method(self, *args, **kwargs)
        for listener in list(_listeners):
            listener.finished(self)
        return result

    return wait


def install():
    """Once a process. Raises RuntimeError or AttributeError where this torch has not what it takes."""
    global _library
    if _library is not None:
        return
    library = torch.library.Library("c10d", "IMPL")
    for name in _NAMES:
        if not hasattr(torch.ops.c10d, name):
            continue
        for key in ("AutogradCPU", "AutogradCUDA"):
            library.impl(name, _kernel(name), key)
    for name in _WITH_OPTIONS:
        if hasattr(ProcessGroup, name):
            setattr(ProcessGroup, name, _with_reduction(getattr(ProcessGroup, name)))
    Work.wait = _waited(Work.wait)
    _library = library


def listen(listener):
    """`listener`: begin(call) before the operation, issued(call) after it, finished(work) when somebody has waited for it."""
    if listener not in _listeners:
        _listeners.append(listener)


def leave(listener):
    if listener in _listeners:
        _listeners.remove(listener)
