"""A run that another one, the reference, leads: each step begins with the weights, buffers and moments that the reference's began with, and has
its rows. The trainer's own loop does all the rest, so that every step of two layouts can be compared, whatever training makes of rounding.

The reference is a folder of traces; what leads is in its snapshots, and in rank-R.rows.json what its loaders asked for.
"""

import contextlib
import functools
import itertools
import json
import operator
import re
import sys
import weakref

import torch

from lockstep_probe import hashing, held, model, ownership, trace_file
from lockstep_probe.ownership import say

_WRAPPERS = re.compile(r"(?<![^./])(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")

MOST_ROWS = 4096  # of a step, whose contents are kept as hashes


def whole(parts, own=0):
    """A tensor of its ranks' parts; of one that each rank holds whole that of rank `own`, or the first."""
    first = parts[0]
    if first.placement is None or not first.placement.shard:
        return parts[own if own < len(parts) else 0].values
    whole = torch.zeros(first.placement.whole, dtype=first.values.dtype)
    for part in parts:
        where = tuple(slice(o, o + n) for o, n in zip(part.placement.offset, part.values.shape))
        whole[where] = part.values
    return whole


def _in_turn(parts):
    """One of each rank, then the second of each: the order of one process."""
    return [each[k] for k in range(max(map(len, parts), default=0)) for each in parts if k < len(each)]


class Kept(dict):
    """Tensors by name, of which the program knows nothing: no copy that it has made, see held.py."""


def snapshots(folder, phase="snapshot", probe=None):
    """Yields (step, whole tensors by name): what a run's steps began with, of all its ranks' traces. Raises OSError, ValueError.
    `probe`: of a rank that is led, by its own where there are as many, since no placement may tell parts."""
    world_size = trace_file.header_of(ownership.path_of(folder, 0, "trace"))["world_size"]
    own = probe.rank if probe is not None and probe.find_rank() is None and probe.world_size == world_size else 0
    for ranks in zip(*(trace_file.read_steps(ownership.path_of(folder, rank, "trace")) for rank in range(world_size))):
        tensors = {}
        for _, records in ranks:
            for record in records:
                if record.phase == trace_file.PHASES[phase] and record.values is not None:
                    tensors.setdefault(record.name, []).append(record)
        if tensors:
            by_name = ((name, parts, own if len(parts) == world_size else 0) for name, parts in tensors.items())
            yield ranks[0][0], Kept((_plain(name), whole(parts, which)) for name, parts, which in by_name)


def _plain(name):
    """A name without the wrappers within it, which another layout may not have."""
    return _WRAPPERS.sub("", name)


def _part(tensor, kept):
    """What of a whole tensor this rank has, as it has it."""
    kept = kept.to(tensor.device, tensor.dtype)
    if not model.is_sharded(tensor):
        return kept
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(kept, tensor.device_mesh, tensor.placements, src_data_rank=None).to_local()


def _same(a, b):
    """Bit by bit where torch cannot compare: float8."""
    return torch.equal(*(each.view(torch.uint8) if each.is_floating_point() and each.element_size() == 1 else each for each in (a, b)))


def _shares(now, then, was, weight):
    """Of an average, which lists of tensors hold: what of the one before it, and of the weights before the update, it has; the rest is the weights after it."""
    columns = [torch.cat([(a - b).flatten() for a, b in zip(each, weight)]) for each in (then, was, now)]
    found = torch.linalg.lstsq(torch.stack(columns[:2], 1), columns[2][:, None], driver="gelsd")
    return found.solution.flatten().tolist() if found.rank == 2 else []


def _apart(a, b):
    """The distance of two tensors, relative to the second; 1e9 where it is none."""
    a, b = a.detach().double(), b.double()
    return float(torch.nan_to_num((a - b).norm() / (b.norm() or 1.0), 1e9, 1e9))


class Led:
    """Of a probe. `problem`: why the run is not led, or not any longer; `steps`: those that were."""

    def __init__(self, probe):
        self.probe, self.folder = probe, probe.settings.led_by
        self.steps, self.problem = [], ""
        self._snapshots, self._now = snapshots(self.folder, probe=probe), (float("-inf"), {})
        self._left, self._changed = {}, {}  # buffers as an update left them; by step: how far those are from the reference's that the program then changed
        self._was, self._averaged = (float("-inf"), {}), {}  # the snapshot before that; by step: the shares of averages, the reference's and the own
        self._begins = None  # of its own first step: how far its tensors were from the reference's, by name

    def lay_in(self, number, before_forward=True, ends=False):
        """What the step begins with. Once the step's first forward pass has been made nothing is changed: it must be near enough. `ends`: the step before
        has just been updated; what the program makes of buffers and averages until the next one is its own, and is compared when that begins."""
        if not self.folder or self.problem:
            return
        try:
            kept = self._at(number)
            if kept is None:
                return
            with torch.no_grad():
                self._lay(number, kept, before_forward, ends)
        except (OSError, ValueError) as error:
            self.problem = str(error)
        if self.problem:
            say(f"not led by {self.folder} from step {number} on: {self.problem}")
        elif number not in self.steps:
            self.steps.append(number)

    def _at(self, number):
        """The reference's snapshot of that step; they are read in their order."""
        while self._now and self._now[0] < number:
            self._was, self._now = self._now, next(self._snapshots, None)
        return self._now[1] if self._now and self._now[0] == number else None

    def _lay(self, step, kept, changes, ends):
        """Raises ValueError that names what does not fit."""
        left, self._left = self._left, {}
        begins, self._begins = self._begins, {} if self._begins is None else self._begins
        averages = {}
        for name, tensor, must in self._tensors():
            found = kept.get(_plain(name))
            if found is None:
                if must:
                    raise ValueError(f"its step {step} has no {name}")
            elif tensor.is_meta:
                raise ValueError(f"{name} has no values yet when step {step} begins (it is on the meta device)")
            elif found.shape != tensor.shape:
                raise ValueError(f"{name} has shape {list(tensor.shape)} here and {list(found.shape)} there")
            else:
                part, own = _part(tensor, found), tensor.to_local() if model.is_sharded(tensor) else tensor
                if name.startswith(("buffer/", "average/")) or (must and not tensor.requires_grad):  # an encoder that follows another
                    if ends:
                        self._left[name] = (id(own), own._version)
                        continue
                    average = name.startswith("average/")  # one that stands still is not up to date
                    if changes and name in left and (average or left[name] != (id(own), own._version)) and not _same(own, part):
                        self._changed.setdefault(step - 1, {})[name] = _apart(own, part)
                        if average:
                            averages[_plain(name)[len("average/") :]] = own.detach().double().cpu().clone()
                if begins is None:
                    self._begins[name] = 0.0 if _same(own, part) else _apart(own, part)
                if changes:
                    own.copy_(part)
                elif not _same(own, part) and not _apart(own, part) < min(64 * torch.finfo(own.dtype).eps, 1e-2):
                    raise ValueError(f"step {step} had begun, with another {name}, before the probe saw it")
        averages = {name: own for name, own in averages.items() if name in kept and own.shape == kept[name].shape and "average/" + name in self._was[1]}
        if averages and self._was[0] == step - 1:
            there = [[which[start + name].double() for name in averages] for which, start in ((self._was[1], "average/"), (self._was[1], ""), (kept, ""))]
            wanted = [kept["average/" + name].double() for name in averages]
            self._averaged[step - 1] = [_shares(now, *there) for now in (wanted, averages.values())]

    def _tensors(self):
        """(name, tensor, must the reference have it?) of all that a step begins with."""
        probe = self.probe
        for watched in probe.parameters:
            yield watched.name, watched.parameter, True
        buffers = (("buffer/" + name, buffer) for name, buffer in probe.state.buffers())
        others = itertools.chain(buffers, probe.state.averages_in_snapshot(), probe.state.moments())
        yield from ((name, tensor, False) for name, tensor, *_ in others if tensor.numel())  # another rank's moments are empty here

    def facts(self):
        if not self.folder:
            return None
        apart = sorted(filter(lambda each: each[1] != 0, (self._begins or {}).items()), key=lambda each: -each[1])
        begins = {"compared": len(self._begins or {}), "differ": dict(apart[:20])}
        return {"folder": self.folder, "steps": self.steps, "problem": self.problem, "begins": begins, "changed": self._changed,
                "averaged": self._averaged}  # fmt: skip


class Rows:
    """What this rank's loaders ask for, in the order in which they are first used; and what they get in its place, of a run that is led.

    Fetch after fetch a rank takes the next rows of the reference's, behind those that the ranks before it take: its data set, its collate
    function, its workers and its accumulation stay as they are. What it had asked for is judged apart.
    """

    def __init__(self, probe):
        self.probe, self._places, self.said, self._reference = probe, weakref.WeakKeyDictionary(), [], None
        self.asked = []  # of each loader: the rows of its data set, and numbers by fetch, asked for and given
        self.contents = {}  # hashes of the rows that forward passes get, by step
        self.taken, self.steps = [], {}  # rows of each batch that training has got; by step what it began with that no trace has

    def given(self, loader, index):
        """What the loader fetches in place of `index`: a list of numbers, or one."""
        many = isinstance(index, (list, tuple))
        try:
            own = list(map(operator.index, index if many else [index]))
        except TypeError:
            self._say("rows without numbers (an IterableDataset, or a sampler of its own kind): they are the run's own")
            return index
        place = self._places.setdefault(loader, len(self.asked))
        if place == len(self.asked):
            self.asked.append({"rows": len(loader.dataset), "asked": [], "given": []})
        taken = self._reference_rows(place, self.asked[place], own)
        self.asked[place]["asked"].append(own)
        if taken is None:
            return index
        self.asked[place]["given"].append(taken)
        return taken if many else taken[0]

    def _reference_rows(self, place, entry, own):
        if not self.probe.settings.led_by:
            return None
        if self._reference is None:
            self._reference = self._read()
        there = self._reference[place] if place < len(self._reference) else None
        if there is None or there["rows"] != entry["rows"]:
            what = f"{there['rows']} rows" if there else "no such loader"
            self._say(f"loader {place} has a data set of {entry['rows']} rows, and the reference's has {what}: its rows are the run's own")
            return None
        turn, ranks = self.turn()
        if len(there["ranks"]) == self.probe.world_size:
            there, turn, ranks = {"flow": there["ranks"][self.probe.rank]}, 0, 1
        if own in there.get("fetches", [])[len(entry["asked"]) : len(entry["asked"]) + 1]:
            return own  # every rank loads the whole batch
        at = sum(map(len, entry["asked"])) * ranks + turn * len(entry["asked"][0] if entry["asked"] else own)  # an epoch's last may be shorter
        taken = there["flow"][at : at + len(own)]
        return taken if len(taken) == len(own) else None

    def turn(self):
        """This rank's place among those that share out a batch, and how many they are: ranks that hold one model together take the same."""
        probe = self.probe
        if "accelerate.state" in sys.modules:
            loader = sys.modules["accelerate.state"].GradientState().active_dataloader
            if type(loader).__name__ == "DataLoaderDispatcher":
                return 0, 1  # the first rank loads for all
        probe.find_rank()
        rank, world_size = probe.rank or 0, probe.world_size or 1
        _, replicas = model.mesh_facts(probe.models, probe.parameters.of_optimizers())
        group = next((ranks for ranks in replicas or () if rank in ranks), range(world_size))
        return list(group).index(rank), len(group)

    def _read(self):
        """Of each of the reference's loaders the rows of all its ranks, in the order of one process."""
        try:
            ranks = []
            with contextlib.suppress(FileNotFoundError):
                while True:
                    with open(ownership.path_of(self.probe.settings.led_by, len(ranks), "rows.json")) as file:
                        ranks.append(json.load(file)["loaders"])
        except (OSError, ValueError, KeyError) as error:
            self._say(f"the reference's rows cannot be read: {error}")
            return []
        if not ranks:
            self._say("the reference has not recorded its rows: they are the run's own")
        flows = []
        for of_ranks in zip(*ranks):
            taken, fetches = [rank["given"] or rank["asked"] for rank in of_ranks], []
            for each in taken:
                if each not in fetches:  # ranks that hold one model together take the same
                    fetches.append(each)
            together = list(_in_turn(fetches))
            flows.append({"rows": of_ranks[0]["rows"], "flow": list(itertools.chain(*together)), "fetches": together,
                          "ranks": [list(itertools.chain(*each)) for each in taken]})  # fmt: skip
        return flows

    def _say(self, text):
        if text not in self.said:
            self.said.append(text)
            say(text)

    def took(self, index):
        """A batch that a loader has yielded; those of an evaluation are not training's."""
        if any(m.training for m in self.probe.models) or not self.probe.models:
            with contextlib.suppress(TypeError):
                self.taken.append([operator.index(i) for i in (index if isinstance(index, (list, tuple)) else [index])])

    def begin(self, step):
        self.steps[step.number] = {"taken": len(self.taken), "generators": {stream: str(state) for stream, state in step.generators[0].items()}, "inputs": [],
                                   **self.probe.state.held.facts(self.probe)}  # fmt: skip

    def enter(self, step, tensors):
        """What a forward pass gets."""
        if step.number in self.steps:
            self.steps[step.number]["inputs"].append(held.hash_of(self.probe, tensors))

    def get(self, step, tensors):
        """The same by row: of all tensors that have as many as the first."""
        count = next((len(t) for t in tensors if t.dim()), 0)
        alike = [hashing.plain(t.detach()) for t in tensors if t.dim() and len(t) == count]
        rows = map(self.probe.recorder.hashes.row_hashes, alike)
        if 0 < count <= MOST_ROWS:
            together = functools.reduce(lambda all, each: all * 31 + each, rows)
            self.contents.setdefault(step, []).extend(together.tolist())

    def write(self):
        """rank-R.rows.json. Raises OSError."""
        rows = {"format": 1, "loaders": self.asked, "said": self.said, "taken": self.taken, "steps": self.steps}
        path = ownership.path_of(self.probe.settings.out, self.probe.rank, "rows.json")
        ownership.write(path, json.dumps({**rows, "contents": self.contents}))
