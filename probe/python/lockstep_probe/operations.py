"""The operations of step K of a program that computes in float64, by LOCKSTEP_OPERATIONS=K.

rank-R.operations.json: `places`, `drawn` (before that step), `weights` (storages of parameters), and `operations` in their order:
    [name, place, in a backward pass?, numbers among its arguments, [tensors in], [tensors out]]
A tensor is [shape, projection, storage], and one that comes out, or is a mask, has [projections of rows], [of columns] and [sums of rows] too, all linear in
its values, whatever zeros come behind them; of more rows than are written, [sums of their first, second and fourth powers].
"""

import json
import math
import os
import sys

import torch
from torch.utils._pytree import tree_leaves

_MOST_ROWS, _MOST_VALUES, _MOST, _MASK = 1024, 1 << 22, 20_000, 1e6
_SILENT = ("detach", "alias", "_local_scalar_dense")
_EMPTY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
_weights = {}


def _of_length(n):
    size = max(1024, 1 << (n - 1).bit_length())
    if size not in _weights:
        parts = [torch.rand(1024, generator=torch.Generator().manual_seed(k), dtype=torch.float64) + 0.5 for k in range(size // 1024)]
        _weights[size] = torch.cat(parts)
    return _weights[size][:n]


def _is_plain(value):
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type != "meta" and value.layout == torch.strided and value.numel() <= _MOST_VALUES


def _storage(tensor):
    return tensor.untyped_storage().data_ptr()


def projected(tensor, along=True):
    values, shape = tensor.detach().to("cpu", torch.float64).nan_to_num(1.1, 2.3, -3.7), list(tensor.shape)
    if tensor.is_floating_point():
        values = torch.where(values.abs() < _MASK, values, values.sign() * 3.7)  # others would not be seen beside what masks write
    while values.dim() > 2:
        values = values @ _of_length(values.shape[-1])
    rows = values @ _of_length(values.shape[1]) if values.dim() == 2 else values
    whole = float(rows @ _of_length(len(rows))) if values.dim() else float(values)
    made = [shape, whole, _storage(tensor)]
    if along:
        columns, sums = (_of_length(values.shape[0]) @ values, values.sum(1)) if values.dim() == 2 else ((), ())
        rows = rows if values.dim() else ()
        made += [list(map(float, each)) if len(each) <= _MOST_ROWS else [] for each in (rows, columns, sums)]
        made.append([float((rows**k).sum()) for k in (1, 2, 4)] if len(rows) > _MOST_ROWS else [])
    return made


class Log:
    def __init__(self, step):
        self.step, self.on, self.operations, self.drawn, self._places = step, False, [], [], {}
        self._weights = set()
        self._probe, self._later = None, []  # of collectives: outputs that nobody has waited for yet, and the tensors

    def follow(self, probe):
        """From the optimizer on, which is there before the first step."""
        self._probe, self.on = probe, self.step == probe.first_step
        from torch.optim.optimizer import register_optimizer_step_post_hook  # this module is there before torch.optim is

        register_optimizer_step_post_hook(self._updated)

    def _updated(self, *_):
        if self._probe.number == self.step - 1:
            self.on, self.operations, self._later = True, [], []

    def root(self, loss):
        """What a backward pass begins with."""
        if self.on and _is_plain(loss):
            self.on = False
            self.operations.append(["backward", self._place(), 1, [], [projected(loss, False)], []])
            self.on = True

    def before(self, func, args, kwargs):
        """Projections of what an operation takes; None of one that is left out."""
        if not self.on or len(self.operations) >= _MOST or func.name().partition("::")[2].partition(".")[0] in _SILENT:
            return None
        given = [each for each in tree_leaves((args, kwargs)) if _is_plain(each)]
        self._weights.update(_storage(each) for each in given if type(each) is torch.nn.Parameter or (each.is_leaf and each.requires_grad))
        for outputs, tensors in self._later if func.namespace != "c10d" else ():
            if {_storage(each) for each in given} & {_storage(each) for each in tensors}:
                outputs[:] = map(projected, tensors)
        self._later = [each for each in self._later if not each[0]]
        return [projected(each, each.dtype == torch.bool) for each in given]

    def after(self, func, args, kwargs, given, result):
        leaves = tree_leaves((args, kwargs))
        numbers = [float(each) for each in leaves if isinstance(each, (int, float)) and not isinstance(each, bool) and math.isfinite(each)][:8]
        made = [each for each in tree_leaves(result) if _is_plain(each)] or [each for each in leaves if _is_plain(each)][:1]
        name = func.name().partition("::")[2]
        if name.partition(".")[0] in _EMPTY:
            outputs = [[list(each.shape), -1e300, _storage(each), [], [], []] for each in made]
        else:
            outputs = [] if func.namespace == "c10d" else list(map(projected, made))
        if not outputs:
            self._later.append((outputs, made))
        self.operations.append([name, self._place(), int(torch._C._current_graph_task_id() != -1), numbers, given, outputs])

    def whole(self, name, function, args):
        """An operation of others, of which no row can be followed through them."""
        given = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
        if not self.on or not all(map(_is_plain, given)):
            return function(*args)
        self.on = False
        try:
            result = function(*args)
            made = [[projected(each) for each in of] for of in (given, [result])]
            self.operations.append([name, self._place(), int(torch._C._current_graph_task_id() != -1), [], *made])
        finally:
            self.on = True
        return result

    def draw(self, result):
        if self._probe is not None and not self.on and len(self.drawn) < _MOST:
            self.drawn += [projected(each, False)[1] for each in tree_leaves(result) if _is_plain(each)]

    def _place(self):
        """The program's own line, and where that is in a library the library's."""
        frame, inner = sys._getframe(2), ""
        while frame is not None:
            file = frame.f_code.co_filename
            if "/torch/" not in file and "lockstep_probe" not in file and not file.startswith("<"):
                place = f"{os.path.basename(file)}:{frame.f_lineno}"
                inner = inner or place
                if "site-packages" not in file and "/lib/python3" not in file:
                    return self._places.setdefault((place, inner), len(self._places))
            frame = frame.f_back
        return self._places.setdefault((inner, inner), len(self._places))

    def write(self, folder, rank):
        self.on = False
        places = [own if own == inner else f"{own} ({inner})" for own, inner in self._places]
        with open(os.path.join(folder, f"rank-{rank}.operations.json"), "w", encoding="utf-8") as file:
            json.dump({"step": self.step, "places": places, "drawn": self.drawn, "weights": sorted(self._weights), "operations": self.operations}, file)


log = None


def switch_on():
    """Once a process, as soon as its environment is its own."""
    global log
    if os.environ.get("LOCKSTEP_OPERATIONS"):
        log = Log(int(os.environ["LOCKSTEP_OPERATIONS"]))
        einsum = torch.einsum
        torch.einsum = lambda *args: log.whole("einsum", einsum, args)
