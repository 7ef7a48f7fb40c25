"""Places of PyTorch that no hook reaches, wrapped once a process: each wrapper calls what it wraps and tells the probes.

Clipping (its norm, and the gradients before it), backward() (the loss), autocast, GradScaler (the scale; updates left out), DistributedDataParallel (which
object wraps which module), destroy_process_group (the last moment at which ranks can talk), exceptions that nobody catches.
"""

import functools
import operator
import sys
import weakref

import torch

from lockstep_probe import model

_probes = weakref.WeakSet()
_done = False


def tell(what, *args):
    for probe in list(_probes):
        operator.attrgetter(what)(probe)(*args)


def watch(probe):
    _install()
    _probes.add(probe)


def probes():
    return list(_probes)


def _wrap(owner, name, make):
    found = getattr(owner, name, None)
    if found is not None:
        setattr(owner, name, functools.wraps(found)(make(found)))


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


def _scale(scale):
    def scaled(self, outputs):
        result = scale(self, outputs)
        if self.is_enabled():
            tell("on_scale", float(self.get_scale()))
        return result

    return scaled


def _scaler_step(step):
    def stepped(self, optimizer, *args, **kwargs):
        inner = getattr(optimizer, "optimizer", optimizer)
        before = [(probe.updates, probe.updates.count(inner)) for probe in _probes]
        result = step(self, optimizer, *args, **kwargs)
        for updates, count in before:
            if updates.count(inner) == count:
                updates.on_skipped(inner)
        return result

    return stepped


def _backward(backward):
    def called(self, *args, **kwargs):
        if self.numel() == 1:
            tell("on_loss", self)
        return backward(self, *args, **kwargs)

    return called


def _autocast(enter):
    def entered(self):
        if self._enabled and not torch.compiler.is_compiling():
            tell("on_autocast", self.device, self.fast_dtype)
        return enter(self)

    return entered


def _ddp(init):
    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        model.WRAPPED.add(self)

    return made


def _pipeline_scale(scale):
    def scaled(self, factor, *args, **kwargs):
        result = scale(self, factor, *args, **kwargs)
        if factor != 1:
            tell("gradients.on_pipeline_scale", list(self.submod.parameters()), factor)
        return result

    return scaled


def watch_pipelines():
    """Stages of torch.distributed.pipelining divide gradients after the backward passes."""
    kind = getattr(sys.modules.get("torch.distributed.pipelining.stage"), "_PipelineStageBase", None)
    if hasattr(kind, "scale_grads") and not hasattr(kind.scale_grads, "__wrapped__"):
        _wrap(kind, "scale_grads", _pipeline_scale)


def _unsharded(init):
    def made(self, *args, **kwargs):
        was = getattr(self, "_unsharded_param", None)
        result = init(self, *args, **kwargs)
        if was is None:
            tell("parameters.on_unsharded", self)
        return result

    return made


def watch_unsharded():
    """FSDP2 makes a parameter's whole form at its first all-gather. False where this torch does it otherwise."""
    module = sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_param")
    kind = getattr(module, "FSDPParam", None)
    if not hasattr(kind, "init_unsharded_param"):
        return False
    if not hasattr(kind.init_unsharded_param, "__wrapped__"):
        _wrap(kind, "init_unsharded_param", _unsharded)
    return True


def _destroy(destroy):
    def destroyed(*args, **kwargs):
        if not args and not kwargs:
            for probe in list(_probes):
                probe.finish()
        return destroy(*args, **kwargs)

    return destroyed


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
        _wrap(torch.amp.GradScaler, "scale", _scale)
        _wrap(torch.amp.GradScaler, "step", _scaler_step)
    _wrap(torch.autocast, "__enter__", _autocast)
    _wrap(torch.Tensor, "backward", _backward)
    _wrap(torch.nn.parallel.DistributedDataParallel, "__init__", _ddp)
    import torch.distributed as dist

    if dist.is_available():
        _wrap(dist.distributed_c10d, "destroy_process_group", _destroy)
        dist.destroy_process_group = dist.distributed_c10d.destroy_process_group
    excepthook = sys.excepthook

    def failed(kind, value, trace):
        tell("on_exception")
        excepthook(kind, value, trace)

    sys.excepthook = failed
