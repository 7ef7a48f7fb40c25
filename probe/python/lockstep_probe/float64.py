"""A program that computes in float64 what it would compute in a narrower type, from the same random numbers; without dropout; by parts of a batch.

Switched on before the program builds anything: LOCKSTEP_PRECISION=float64, LOCKSTEP_DROPOUT=off, LOCKSTEP_NORM_PARTS=4. What the program makes, casts to or reads in a
narrower type is float64, operation by operation, in backward passes and functions of its own too. Numbers are drawn in float32 and are then
widened, so that data, weights and shuffles are those of the run in the program's precision. torch.compile makes no graphs meanwhile.
"""

import contextlib
import functools
import os
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from lockstep_probe import operations

NARROW = (torch.float32, torch.bfloat16, torch.float16)
_DRAWS = ("rand", "normal", "uniform", "exponential", "log_normal", "cauchy", "geometric", "bernoulli", "multinomial")
on = None  # the mode, while it is on


def is_narrow(value):
    return isinstance(value, torch.Tensor) and value.dtype in NARROW


def _mapped(value, tensor, dtype=lambda d: d):
    """In a third of tree_map's time."""
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(each, tensor, dtype) for each in value])
    if isinstance(value, dict):
        return {key: _mapped(each, tensor, dtype) for key, each in value.items()}
    return tensor(value) if isinstance(value, torch.Tensor) else dtype(value) if isinstance(value, torch.dtype) else value


def widened(value):
    return _mapped(value, lambda t: t.double() if t.dtype in NARROW else t, lambda d: torch.float64 if d in NARROW else d)


def narrowed(value, to=torch.float32):
    return _mapped(value, lambda t: t.to(to) if t.dtype == torch.float64 else t, lambda d: to if d == torch.float64 else d)


@functools.cache
def kind(func):
    """Is an operation left as it is (views, changes in place)? The places of the arguments that it changes. And does it draw?"""
    infos = [argument.alias_info for argument in func._schema.arguments]
    fixed = any(info is not None for info in infos) and "lift_fresh" not in func.name()
    name = func.name().partition("::")[2]
    draws = torch.Tag.nondeterministic_seeded in func.tags and name.startswith(_DRAWS)
    return fixed, [k for k, info in enumerate(infos) if info is not None and info.is_write], draws


class Mode(TorchDispatchMode):
    """See the module. `narrow`: operations that computed in a narrower type all the same, and not exactly. `casts`: where a forward pass asked for a
    16-bit type."""

    def __init__(self, is_ours):
        super().__init__()
        self._is_ours, self.narrow, self.casts = is_ours, set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._is_ours():
            return func(*args, **kwargs)
        given = None if operations.log is None else operations.log.before(func, args, kwargs)
        result = self._compute(func, args, kwargs)
        if given is not None:
            operations.log.after(func, args, kwargs, given, result)
        return result

    def _compute(self, func, args, kwargs):
        fixed, places, draws = kind(func)
        if draws:
            drawn = self._draw(func, places, args, kwargs)
            if operations.log is not None:
                operations.log.draw(drawn)
            return drawn
        wide = widened((args, kwargs))
        written = [each for k in places if k < len(args) for each in tree_leaves(args[k]) if is_narrow(each)]
        written += [each for key, each in kwargs.items() if key == "out" and is_narrow(each)]
        if kwargs.get("dtype") in NARROW[1:] and args and getattr(args[0], "requires_grad", False) and torch._C._current_graph_task_id() == -1:
            self.casts.add(_place())
        if "_fused_" in func.name():
            return self._fused(func, args, kwargs)
        if written:
            return self._change(func, places, written, args, kwargs)
        if places:
            return func(*(args[k] if k in places else each for k, each in enumerate(wide[0])), **wide[1])
        if fixed:
            return func(*args, **kwargs)
        try:
            return func(*wide[0], **wide[1])
        except (RuntimeError, NotImplementedError) as error:
            if "Double" not in str(error) and "float64" not in str(error):
                raise
            self.narrow.add(func.name())  # a kernel that has no float64
            return widened(func(*narrowed(args), **narrowed(kwargs)))

    @staticmethod
    def _draw(func, places, args, kwargs):
        """In float32, as the program draws where this mode is off."""
        low, more = narrowed((args, kwargs))
        if places:
            into = args[places[0]]
            if into.dtype != torch.float64 or type(into) not in (torch.Tensor, torch.nn.Parameter):
                return func(*args, **kwargs)
            drawn = torch.empty_strided(into.shape, into.stride(), dtype=torch.float32, device=into.device)
            func(*(drawn if k == places[0] else each for k, each in enumerate(low)), **more)
            return into.copy_(drawn)
        if more.get("dtype") is None and any(argument.name == "dtype" for argument in func._schema.arguments) and "int" not in func.name() and "perm" not in func.name():
            more["dtype"] = torch.float32
        return widened(func(*low, **more))

    @staticmethod
    def _fused(func, args, kwargs):
        """An optimizer's kernel, to which counts of steps, rates and scales are float32 whatever the parameters are."""
        names = [argument.name for argument in func._schema.arguments]
        low = [narrowed(each) if name == "state_steps" else each for name, each in zip(names, args)]
        result = func(*low, **narrowed(kwargs))
        for wide, narrow in zip(args, low):
            for kept, counted in zip(tree_leaves(wide), tree_leaves(narrow)) if narrow is not wide else ():
                kept.copy_(counted)
        return result

    def _change(self, func, places, written, args, kwargs):
        """Of a tensor in a narrower type that was there before. What others will add to it is looked at before: it may still be on its way afterwards."""
        if func.namespace == "c10d":
            if not all(bool((each == each.round()).all()) for each in written):
                self.narrow.add(func.name())
            return func(*args, **kwargs)
        exact = None
        with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):
            exact = tree_leaves(func(*widened(_mapped(args, torch.clone)), **widened({key: each for key, each in kwargs.items() if key != "out"})))
        rest = {key: each if key == "out" else narrowed(each, written[0].dtype) for key, each in kwargs.items()}
        result = func(*(each if k in places else narrowed(each, written[0].dtype) for k, each in enumerate(args)), **rest)
        if exact is None or not all(torch.equal(a.double(), b.double()) for a, b in zip(tree_leaves(result), exact) if isinstance(a, torch.Tensor)):
            self.narrow.add(func.name())
        return result


def _place():
    """Where the program itself is, file and line."""
    frame = sys._getframe(2)
    while frame is not None and ("/torch/" in frame.f_code.co_filename or "lockstep_probe" in frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def widen(batch):
    """A batch with every float in float64, also one that keeps its tensors in a mapping of its own (BatchEncoding)."""
    data = getattr(batch, "data", None)
    if isinstance(data, dict):
        data.update({key: widen(each) for key, each in data.items()})
        return batch
    return tree_map(lambda each: each.double() if is_narrow(each) else each, batch)


def widen_parameters(optimizer):
    """Those that came into their module, or into the optimizer, past the hooks below."""
    for p in (p for group in optimizer.param_groups for p in group["params"]):
        _widen(p)


def _widen(p):
    if is_narrow(p) and not hasattr(p, "device_mesh"):
        p.data = p.data.double()


def few_digits(gradients):
    """Names of those of (name, gradient) in float64 that have the digits of float32 alone. Of one with few digits at all nothing is known, nor of one
    that is nothing but rounding, such as a bias has before BatchNorm."""
    gradients = list(gradients)
    least = 1e-12 * sum(float(g.norm()) ** 2 for _, g in gradients) ** 0.5
    return [name for name, g in gradients if g.dtype == torch.float64 and g.count_nonzero() >= 8 and float(g.norm()) > least
            and bool((g == g.float().double()).all()) and not bool((g == g.bfloat16().double()).all())]  # fmt: skip


def switch_on(is_ours):
    """Once a process, as soon as torch is there. `is_ours()`: does the probe itself compute?"""
    global on
    operations.switch_on()
    on = Mode(is_ours)
    on.__enter__()
    set_default = torch.set_default_dtype
    set_default(torch.float64)
    torch.set_default_dtype = lambda dtype: set_default(torch.float64 if dtype in NARROW else dtype)
    registers = torch.nn.modules.module
    registers.register_module_parameter_registration_hook(lambda _module, _name, p: None if p is None else _widen(p))
    registers.register_module_buffer_registration_hook(lambda _module, _name, b: b.double() if is_narrow(b) else None)
    autocast, scaler = torch.autocast.__init__, torch.amp.GradScaler.__init__

    @functools.wraps(autocast)
    def no_autocast(self, *args, **kwargs):
        autocast(self, *args, **kwargs)
        self._enabled = False

    @functools.wraps(scaler)
    def no_scaler(self, *args, **kwargs):
        scaler(self, *args, **{**kwargs, "enabled": False})

    torch.autocast.__init__, torch.amp.GradScaler.__init__ = no_autocast, no_scaler


def no_policy(module):
    """FSDP2's mixed precision: none."""
    init = module.MixedPrecisionPolicy.__init__
    module.MixedPrecisionPolicy.__init__ = functools.wraps(init)(lambda self, *_args, **_kwargs: init(self))


# Dropout.


def no_dropout():
    """Off in every module and function of PyTorch's."""
    import torch.nn.functional as F

    for name in ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"):
        setattr(F, name, functools.wraps(getattr(F, name))(lambda input, *_args, **_kwargs: input))  # noqa: A006  its name there
    torch.dropout = lambda input, *_args, **_kwargs: input  # noqa: A006
    attention, init = F.scaled_dot_product_attention, torch.nn.RNNBase.__init__

    def without(*args, **kwargs):
        return attention(*args[:4], *((0.0, *args[5:]) if len(args) > 4 else ()), **{key: 0.0 if key == "dropout_p" else each for key, each in kwargs.items()})

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.dropout = 0.0

    F.scaled_dot_product_attention, torch.nn.RNNBase.__init__ = without, made


# BatchNorm.


def norm_in_parts(count):
    """BatchNorm takes its statistics from each of `count` parts of a batch, as so many ranks do that share its rows out; the running ones from the
    first, as those of rank 0 are kept."""
    import torch.nn.functional as F

    norm = F.batch_norm

    @functools.wraps(norm)
    def of_parts(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):  # noqa: A002  its name there
        if not training or input.shape[0] < count:
            return norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        running = [(running_mean, running_var)] + [(None, None)] * (count - 1)
        return torch.cat([norm(part, *kept, weight, bias, True, momentum, eps) for part, kept in zip(input.tensor_split(count), running)])

    F.batch_norm = of_parts
