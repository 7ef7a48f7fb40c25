"""What a trainer holds besides its model and its optimizers' moments, and has to save with them: counters, schedules, GradScalers, averages of the weights.

Of a run that is compared with a resumed one. No name leads to most of this: every object of the process is asked for its type.
"""

import collections
import functools
import gc

import torch

from lockstep_probe import hashing, model

_KINDS = {torch.optim.lr_scheduler.LRScheduler: "schedule", torch.amp.GradScaler: "scaler", torch.nn.Module: "module"}
_KINDS |= {list: "row", tuple: "row", dict: "names", collections.OrderedDict: "names"}
_POSITIONS = ("last_epoch", "best", "num_bad_epochs", "T_cur")  # of a schedule


@functools.cache
def _is(kind):
    return next((name for known, name in _KINDS.items() if kind is known or (name in ("schedule", "scaler", "module") and issubclass(kind, known))), None)


def of(probe):
    """By kind, each in an order that another run of the program has too. Averages: (type, hash), of every copy of the weights."""
    watched = list(probe.parameters)
    shapes = {tuple(w.parameter.shape for w in watched if every or w.parameter.requires_grad) for every in (True, False)}
    counts, own = set(map(len, shapes)), {_place(w.parameter) for w in watched}
    schedules, scalers, copies = [], [], {}
    for o in gc.get_objects():
        kind, tensors = _is(type(o)), ()
        if kind == "schedule":
            schedules.append([float(v) for k in _POSITIONS if isinstance(v := getattr(o, k, None), (int, float))])
        elif kind == "scaler" and o.is_enabled():
            scalers.append([o.get_scale(), o.state_dict()["_growth_tracker"]])
        elif kind == "module":
            tensors = list(o.parameters())
        elif kind == "row" and len(o) in counts:
            tensors = o
        elif kind == "names" and watched[0].name in o:
            tensors = [o[w.name] for w in watched if w.name in o]
        if len(tensors) in counts and all(isinstance(t, torch.Tensor) for t in tensors) and tuple(t.shape for t in tensors) in shapes:
            if _place(tensors[0]) not in own and tensors[0].element_size() >= watched[0].parameter.element_size():  # a narrower one was made to be saved
                copies.setdefault(_place(tensors[0]), (type(o).__name__, tensors))
    counters = [sorted({int(s["step"]) for s in model.inner_optimizer(o).state.values() if "step" in s}) for o in probe.optimizers]
    return {"counters": counters, "schedules": sorted(schedules), "scalers": sorted(scalers), "weights": hash_of(probe, probe.parameters.tensors()),
            "averages": sorted((kind, hash_of(probe, [t.to(watched[0].parameter.dtype) for t in tensors])) for kind, tensors in copies.values())}  # fmt: skip


def _place(tensor):
    return model.held(tensor.detach()).data_ptr()


def hash_of(probe, tensors):
    """Of all together, in whatever order they come."""
    hashes = probe.recorder.hashes
    plain = [hashing.plain(model.held(t)) for t in tensors]
    return str(sum(hashes.tensor_hash(t, hashes.extents(t.shape)) for t in plain) & (1 << 64) - 1)
