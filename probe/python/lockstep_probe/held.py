"""What a trainer holds besides its model and its optimizers' moments, and has to save with them: counters, schedules, GradScalers, averages of the weights.

Of a run that is compared with a resumed one. No name leads to most of this: every object of the process is asked for its type.
"""

import collections
import contextlib
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


class Held:
    """Looked for as a step begins. `averages`: (name, tensor) of what has followed the weights since it was first seen near them, such as an average, a
    teacher, a reference model; none where there are several, of which no order is known that another run has too."""

    def __init__(self, probe):
        self._watched, self.schedules, self.scalers, copies = list(probe.parameters), [], [], {}
        self._own, self._trained = {_place(w.parameter) for w in self._watched}, [w for w in self._watched if w.parameter.requires_grad]
        for o in gc.get_objects():
            with contextlib.suppress(AttributeError, RuntimeError):  # a module that is not made yet, a tensor without memory
                self._look_at(o, copies)
        whole = {place: (type(o).__name__, tensors) for (place, _), (weights, tensors, o, _) in sorted(copies.items(), key=lambda each: each[0], reverse=True)
                 if len(weights) in (len(self._watched), len(self._trained))}  # fmt: skip
        self._copies = list(whole.values())
        self.averages = self._one_of([each for (_, row), each in copies.items() if not row], probe.state.followed)

    def _look_at(self, o, copies):
        kind, weights, tensors = _is(type(o)), (), ()
        if kind == "schedule":
            self.schedules.append([float(v) for k in _POSITIONS if isinstance(v := getattr(o, k, None), (int, float))])
        elif kind == "scaler" and o.is_enabled():
            self.scalers.append([o.get_scale(), o.state_dict()["_growth_tracker"]])
        elif kind == "module":
            weights, tensors = self._watched, list(o.parameters())
        elif kind == "row" and len(o) in (len(self._watched), len(self._trained)):
            weights, tensors = self._watched if len(o) == len(self._watched) else self._trained, o
        elif kind == "names" and self._watched and self._watched[0].name in o:
            weights, tensors = zip(*((w, o[w.name]) for w in self._watched if w.name in o))
        weights = self._copied(weights, tensors)
        key = weights and (_place(tensors[0]), kind == "row")
        if weights and len(weights) > len(copies.get(key, ((),))[0]):
            copies[key] = weights, tensors, o, kind

    def _copied(self, weights, tensors):
        """Those of the weights, one after the other, that have these shapes; nothing where they are the weights, or a narrower copy, made to be saved."""
        if not tensors or not all(isinstance(t, torch.Tensor) and _place(t) not in self._own for t in tensors):
            return ()
        shapes, there = [t.shape for t in tensors], [w.parameter.shape for w in weights]
        at = [k for k in range(len(there) - len(shapes) + 1) if there[k : k + len(shapes)] == shapes]
        return weights[at[0] : at[0] + len(shapes)] if len(at) == 1 and tensors[0].element_size() >= weights[0].parameter.element_size() else ()

    @staticmethod
    def _one_of(copies, followed):
        near, places = [], [({_place(t) for t in tensors}, len(weights)) for weights, tensors, *_ in copies]
        for weights, tensors, o, kind in copies:
            if len(weights) < 2 or any(_place(tensors[0]) in within and size > len(weights) for within, size in places):
                continue
            names, was = tuple(w.name for w in weights), [model.held(w.parameter.detach()).double() for w in weights]
            off = sum(float((model.held(t.detach()).double() - w).pow(2).sum()) for w, t in zip(was, tensors))
            if names in followed or off < sum(float(w.pow(2).sum()) for w in was) / 4:
                near.append((names, tensors, o.named_buffers() if kind == "module" else ()))
        if len(near) != 1:
            return []
        names, tensors, buffers = near[0]
        followed.add(names)
        return [*zip(names, tensors), *(("buffer/" + name, b) for name, b in buffers)]

    def facts(self, probe):
        """By kind, each in an order that another run of the program has too. Averages: (type, hash), of every copy of the weights."""
        counters = [sorted({int(s["step"]) for s in model.inner_optimizer(o).state.values() if "step" in s}) for o in probe.optimizers]
        averages = sorted((kind, hash_of(probe, [t.to(self._watched[0].parameter.dtype) for t in tensors])) for kind, tensors in self._copies)
        return {"counters": counters, "schedules": sorted(self.schedules), "scalers": sorted(self.scalers),
                "weights": hash_of(probe, probe.parameters.tensors()), "averages": averages}  # fmt: skip


def _place(tensor):
    return model.held(tensor.detach()).data_ptr()


def hash_of(probe, tensors):
    """Of all together, in whatever order they come."""
    hashes = probe.recorder.hashes
    plain = [hashing.plain(model.held(t)) for t in tensors]
    return str(sum(hashes.tensor_hash(t, hashes.extents(t.shape)) for t in plain) & (1 << 64) - 1)
