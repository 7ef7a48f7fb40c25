"""The parameters that are recorded, by name, and the hooks on them."""

import functools

import torch

from lockstep_probe import model, patches
from lockstep_probe.hooks import Attached


class Watched:
    """A parameter. `local`, `reduced`: this step's records so far; `sum`: of the rank's own gradients, `parts`: those of each micro-step (None:
    they take too much); `clipped`: the hash of a gradient that nobody had reduced when it was clipped; `passes`: updates that other optimizers
    had made when a backward pass last added to it; `taken`: the gradient was taken away between two of them, and `left` where the last one has
    left its own; `held`: the last one was not reduced by the wrapper, `synced`: another one was; `lost`: the local gradient is not known;
    `by_copy`: an optimizer has taken that of a copy. `ignored`: by DistributedDataParallel, whose model has it."""

    __slots__ = ("alike", "by_copy", "clipped", "handles", "held", "ignored", "left", "local", "lost", "name", "parameter", "parts", "passes", "reduced", "sum", "synced", "taken",
                 "unsharded")  # fmt: skip

    def __init__(self, name, parameter, alike=True, ignored=False):
        self.name, self.parameter, self.alike, self.ignored = name, parameter, alike and not ignored, ignored
        self.handles, self.unsharded = [], None
        self.clear()

    def clear(self):
        self.local = self.reduced = self.sum = self.clipped = self.passes = self.left = None
        self.taken = self.held = self.synced = self.lost = self.by_copy = False
        self.parts = {}

    def add_part(self, micro, gradient):
        """What a micro-step's backward pass adds to the gradient."""
        self.parts[micro] = self.parts[micro] + gradient if micro in self.parts else gradient.clone()


def _has_memory(p):
    return not p.numel() or model.is_sharded(p) or p.is_meta or p.untyped_storage().nbytes() > 0


class Parameters:
    """All of a model, and those that the optimizers alone have."""

    def __init__(self, probe):
        self.probe, self._by_id, self.pieces, self._copies = probe, {}, set(), None

    def __iter__(self):
        return (w for w in self._by_id.values() if not w.name.startswith("unnamed ") or _has_memory(w.parameter))

    def of(self, parameter):
        return self._by_id.get(id(parameter))

    def tensors(self):
        return [w.parameter for w in self]

    def of_optimizers(self):
        """But those whose memory a later wrapper gave back."""
        held = [p for o in self.probe.optimizers for p in model.parameters_of(o)]
        return list(filter(_has_memory, held))

    def shared_name(self, watched):
        """As all ranks call it: of a rank's own parameter the beginning by which it is known."""
        return next((start for start in self.probe.own if watched.name.startswith(start)), watched.name)

    def find(self):
        """Names of all parameters, and hooks on those that have none yet."""
        probe, known = self.probe, set()
        ignored = {name for m in probe.models for name in getattr(m, "_ddp_params_and_buffers_to_ignore", ())}
        named = list(model.named(probe.models, "named_parameters"))
        self.pieces = self._find_pieces([p for _, _, p in named])
        for prefix, name, p in named + [("", "", p) for p in self.of_optimizers()]:
            known.add(id(p))
            if id(p) not in self._by_id and id(p) not in self.pieces:
                self._listen(Watched(prefix + name or f"unnamed {len(self._by_id)}", p, not (name and name.startswith(probe.own)), name in ignored))
        self._find_unsharded()
        for key in self._by_id.keys() - (known - self.pieces):
            for handle in self._by_id.pop(key).handles:
                handle.remove()

    def copies(self):
        """Before the first update: parameters that no optimizer has, where they have others, and of each the one with its values."""
        if self._copies is None:
            free = [w.parameter for w in self if w.name.startswith("unnamed ")]
            held, self._copies = set(map(id, self.of_optimizers())), []
            for w in self if free else ():
                p = w.parameter
                if p.requires_grad and id(p) not in held and _has_memory(p) and not model.is_sharded(p):
                    found = next((c for c in free if c.shape == p.shape and torch.equal(c.detach().to(p), p.detach())), None)
                    free = [c for c in free if c is not found]
                    self._copies.append((w, found))
        return self._copies

    def _find_pieces(self, held):
        """Of flat tensors into which parameters are put together, the parts of a rank: another number of ranks has others, and no name or shape tells
        which. FSDP1's stand in the place of the parameters; or no module has what an optimizer updates, and parameters are copied from that."""
        flat = [p for m in self.probe.models if model.has_flat_parameters(m) for p in m.parameters()]
        shapes, trained = {p.shape for p in held}, self.of_optimizers()
        if held and set(map(id, held)).isdisjoint(map(id, trained)):
            flat += [p for p in trained if p.dim() == 1 and p.shape not in shapes]
            if flat:
                self.probe._note("what the optimizers update is in no module, and is put together of parameters: the model's parameters and local gradients "
                                 "are recorded, and the optimizers' state and reduced gradients are not", once="pieces")  # fmt: skip
        return set(map(id, flat))

    def _listen(self, watched):
        p, gradients = watched.parameter, self.probe.gradients
        self._by_id[id(p)] = watched
        if p.requires_grad and p.is_leaf and not watched.handles:
            watched.handles.append(Attached(p.register_post_accumulate_grad_hook, functools.partial(gradients.accumulated, watched)))
            hooks = p._post_accumulate_grad_hooks
            last = hooks.popitem()
            others = list(hooks.items())  # such as one that starts a reduction, which may write the gradient from then on
            hooks.clear()
            hooks.update([last, *others])
            watched.handles.append(Attached(p.register_hook, functools.partial(gradients.added, watched)))

    def _find_unsharded(self):
        groups = [group for m in self.probe.models for group in model.fsdp_groups(m)]
        if groups and not patches.watch_unsharded():
            self.probe._note("this torch's FSDP2 does not show a rank's own gradients: local gradients are missing", once="unsharded")
        for group in groups:
            for p in group.fsdp_params:
                self.on_unsharded(p)

    def on_unsharded(self, sharded):
        """The whole form of an FSDP2 parameter, whose gradient is the rank's own."""
        watched = None if self.probe.is_off else self.of(sharded.sharded_param)
        whole = getattr(sharded, "_unsharded_param", None)
        if watched is None or whole is None or watched.unsharded is whole:
            return
        watched.unsharded = whole
        if whole.requires_grad:
            watched.handles.append(Attached(whole.register_hook, functools.partial(self.probe.gradients.added_unsharded, watched)))

    def check(self):
        """Parameters that came after the probe, or were replaced, are recorded from here on, by name."""
        probe = self.probe
        for watched in self:
            self._listen(watched)  # to one that was frozen
        known = self._by_id.keys() | self.pieces | {id(w.unsharded) for w in self}  # FSDP2 puts these in the modules for a while
        if all(id(p) in known for p in self.of_optimizers() + [p for m in probe.models for p in m.parameters()]):
            return
        before = {w.name for w in self}
        self.find()
        added = [w.name for w in self if w.name not in before]
        if added and probe.steps_done:
            probe._note(f"parameters were added after the probe was attached and are recorded from step {probe.number} on: {', '.join(added[:5])}"
                        + (f" and {len(added) - 5} more" if len(added) > 5 else ""))  # fmt: skip
        elif probe.steps_done and before:
            probe._note(f"parameters were replaced by others of the same names before step {probe.number}; the new ones are recorded from there on")
