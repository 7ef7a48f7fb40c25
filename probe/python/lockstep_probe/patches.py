"""Places of PyTorch that no hook reaches, wrapped once a process: each wrapper calls what it wraps and tells the probes.

Clipping (its norm, and the gradients before it), backward() (the loss), autocast, GradScaler (the scale; updates left out), DistributedDataParallel (which
object wraps which module), destroy_process_group (the last moment at which ranks can talk), exceptions that nobody catches, what copies and compiles
modules, and every optimizer's updates: those that no probe records are counted.
"""

import contextlib
import functools
import operator
import os
import sys
import threading
import types
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lockstep_probe import guard, hooks, model, ownership, zero

_probes = weakref.WeakSet()
_watched = []  # the folder of the last probe, for updates that none records
_stepping = threading.local()
_done = False


def tell(what, *args):
    for probe in list(_probes):
        operator.attrgetter(what)(probe)(*args)


def watch(probe):
    _install()
    _probes.add(probe)
    _watched[:] = [(probe.settings.out, weakref.ref(probe))]


def probes():
    return list(_probes)


def are_inside():
    """Does a probe itself compute?"""
    return any(probe.inside for probe in _probes)


def _wrap(owner, name, make):
    found = getattr(owner, name, None)
    if found is not None:
        setattr(owner, name, functools.wraps(found)(make(found)))


def _within(owner, name, context):
    """Each call runs within `context`: a context manager that gets the call's arguments."""

    def make(found):
        def called(*args, **kwargs):
            with context(*args, **kwargs):
                return found(*args, **kwargs)

        return called

    _wrap(owner, name, make)


def _clipping(clip, parameters, max_norm=None, norm=None):
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    tell("gradients.on_clip", parameters, max_norm, norm)
    result = clip(parameters)
    tell("gradients.after_clip", parameters)
    return result


def _clip(clip):
    def clipped(parameters, max_norm, total_norm, *args, **kwargs):
        return _clipping(lambda each: clip(each, max_norm, total_norm, *args, **kwargs), parameters, float(max_norm), total_norm)

    return clipped


def _clip_value(clip):
    return lambda parameters, *args, **kwargs: _clipping(lambda each: clip(each, *args, **kwargs), parameters)


@contextlib.contextmanager
def _scale(self, *_args, **_kwargs):
    yield
    if self.is_enabled():
        tell("on_scale", float(self.get_scale()))


@contextlib.contextmanager
def _scaler_step(_self, optimizer, *_args, **_kwargs):
    inner = getattr(optimizer, "optimizer", optimizer)
    before = [(probe.updates, probe.updates.count(inner)) for probe in _probes]
    yield
    for updates, count in before:
        if updates.count(inner) == count:
            updates.on_skipped(inner)


@contextlib.contextmanager
def _backward(self, *_args, **_kwargs):
    is_loss = self.numel() == 1
    if is_loss:
        tell("on_loss", self)
    yield
    if is_loss:
        tell("after_loss", self)


def _autocast(enter):
    def entered(self):
        if self._enabled and not torch.compiler.is_compiling():
            tell("on_autocast", self.device, self.fast_dtype)
        return enter(self)

    return entered


@contextlib.contextmanager
def _ddp(self, *_args, **_kwargs):
    yield
    model.WRAPPED.setdefault(self)
    for probe in probes():
        probe.wrapped_anew = True  # the next step begins with it


@contextlib.contextmanager
def _pipeline_scale(self, factor, *_args, **_kwargs):
    yield
    if factor != 1:
        tell("gradients.on_pipeline_scale", list(self.submod.parameters()), factor)


def watch_pipelines():
    """Stages of torch.distributed.pipelining divide gradients after the backward passes."""
    kind = getattr(sys.modules.get("torch.distributed.pipelining.stage"), "_PipelineStageBase", None)
    if hasattr(kind, "scale_grads") and not hasattr(kind.scale_grads, "__wrapped__"):
        _within(kind, "scale_grads", _pipeline_scale)


def _getstate(getstate):
    def state(self):
        found = getstate(self)
        return guard.without_hooks(found) if type(found) is dict else found

    return state


@contextlib.contextmanager
def _graphed(callables, *_args, **_kwargs):
    """Its passes are no training, and it takes no module with hooks."""
    with contextlib.ExitStack() as stack:
        for each in callables if isinstance(callables, tuple) else (callables,):
            if isinstance(each, torch.nn.Module):
                stack.enter_context(guard.hooks_off(each))
        for probe in probes():
            stack.enter_context(probe.paused())
        yield


@contextlib.contextmanager
def _unsharded(self, *_args, **_kwargs):
    was = getattr(self, "_unsharded_param", None)
    yield
    if was is None:
        tell("parameters.on_unsharded", self)


def watch_unsharded():
    """FSDP2 makes a parameter's whole form at its first all-gather. False where this torch does it otherwise."""
    module = sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_param")
    kind = getattr(module, "FSDPParam", None)
    if not hasattr(kind, "init_unsharded_param"):
        return False
    if not hasattr(kind.init_unsharded_param, "__wrapped__"):
        _within(kind, "init_unsharded_param", _unsharded)
    return True


def destroy(plain, *args, **kwargs):
    """In place of destroy_process_group: at the end of the group of all ranks they talk for the last time."""
    import torch.distributed as dist

    group = args[0] if args else kwargs.get("group")
    if group is None or group is dist.group.WORLD:
        for probe in list(_probes):
            probe.finish()
    return plain(*args, **kwargs)


def _destroying(*args, **kwargs):
    from lockstep_probe import patches

    return patches.destroy(patches.plain_destroy, *args, **kwargs)


def _watch_destroy(module):
    """The function itself gets other code: many programs have imported it by its name before the probe came."""
    global plain_destroy
    found = module.destroy_process_group
    plain_destroy = functools.wraps(found)(types.FunctionType(found.__code__, found.__globals__, found.__name__, found.__defaults__, found.__closure__))
    if found.__closure__:  # decorated: it cannot
        module.destroy_process_group = functools.wraps(found)(_destroying)
    else:
        found.__code__, found.__defaults__ = _destroying.__code__, None


# Updates of optimizers that no probe has.


def _live():
    return [probe for probe in _probes if not probe.is_off and not probe.closed and probe.process == os.getpid()]


def _before_any_update(optimizer, *_):
    nested = vars(_stepping).setdefault("optimizers", [])
    if optimizer in nested:  # an earlier update has failed
        del nested[nested.index(optimizer) :]
    nested.append(optimizer)
    tell("end_by_force")
    for probe in _live():
        if not probe.updates.knows(optimizer) and any(map(probe.parameters.of, model.parameters_of(optimizer))):
            probe.add_optimizer(optimizer)  # another one for the same model: its updates train what is recorded


def _after_any_update(optimizer, *_):
    nested = vars(_stepping).setdefault("optimizers", [])
    del nested[nested.index(optimizer) if optimizer in nested else 0 :]
    if nested or not _watched or any(probe.updates.knows(optimizer) for probe in _live()):
        return  # part of another optimizer's update, or recorded
    out, last = _watched[-1]
    last = last()
    same = last is not None and last.process == os.getpid() and last.updates.knows(optimizer)
    why = "the training went on after the end of its recording and" if same and last.claimed else ""
    ownership.unrecorded.add((out, _rank(last)), optimizer, why=why)


def _rank(probe):
    if probe is not None and probe.rank is not None:
        return probe.rank
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else int(os.environ.get("RANK", 0))


# How the process ends.


def _watch_ends():
    thread_hook, leave = threading.excepthook, sys.exit

    def failed_in_thread(args):
        for probe in list(_probes):
            if probe.thread == threading.get_ident():
                probe.on_exception(args.exc_value)
        thread_hook(args)

    @functools.wraps(leave)
    def left(status=None):
        if threading.current_thread() is threading.main_thread() and status not in (None, 0):
            tell("on_exception", ownership.in_flight(), status)
        leave(status)

    threading.excepthook, sys.exit = failed_in_thread, left
    ownership.on_failure(functools.partial(tell, "on_exception"))


def _forked():
    for probe in list(_probes):
        probe.forked()


def _install():
    global _done
    if _done:
        return
    _done = True
    clip = sys.modules["torch.nn.utils.clip_grad"]
    _wrap(clip, "_clip_grads_with_norm_", _clip)
    if hasattr(torch.nn.utils, "clip_grads_with_norm_"):
        torch.nn.utils.clip_grads_with_norm_ = clip._clip_grads_with_norm_
    _wrap(clip, "clip_grad_value_", _clip_value)
    torch.nn.utils.clip_grad_value_ = clip.clip_grad_value_
    if hasattr(torch.amp, "GradScaler"):
        _within(torch.amp.GradScaler, "scale", _scale)
        _within(torch.amp.GradScaler, "step", _scaler_step)
    _wrap(torch.autocast, "__enter__", _autocast)
    _within(torch.Tensor, "backward", _backward)
    _within(torch.nn.parallel.DistributedDataParallel, "__init__", _ddp)
    _wrap(torch.nn.Module, "__getstate__", _getstate)
    _within(sys.modules.get("torch.jit._recursive"), "create_script_module", lambda module, *_, **__: guard.hooks_off(module))
    # A trace is compared with what the module gives without it: a forward pass that no training makes.
    _within(sys.modules.get("torch.jit._trace"), "_check_trace", lambda *_, **__: hooks.silence())
    _within(torch.cuda, "make_graphed_callables", _graphed)
    import torch.distributed as dist

    if dist.is_available():
        _watch_destroy(dist.distributed_c10d)
        dist.destroy_process_group = dist.distributed_c10d.destroy_process_group
    register_optimizer_step_pre_hook(torch._disable_dynamo(_before_any_update))
    register_optimizer_step_post_hook(torch._disable_dynamo(_after_any_update))
    os.register_at_fork(after_in_child=_forked)
    zero.once_there("torch._dynamo.trace_rules", hooks.keep_out)
    _watch_ends()
