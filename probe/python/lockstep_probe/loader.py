"""Sample ids without a line in the trainer: those of the DataLoader's batch whose tensors a forward pass takes.

Only where the numbers are those of the whole data set: in one process, or with a sampler that divides it among the ranks. A rank's own data
set has numbers of its own, which would be mistaken for others' rows.
"""

import collections
import contextlib
import functools

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.data import Subset, dataloader

from lockstep_probe import float64, hashing

_MOST = 16  # batches that a loader may have fetched ahead of the forward pass: those of an accumulation, and one more
_SAMPLED = 4096  # elements of a tensor by which a copy of it is known
_DIVIDING = ("DistributedSampler", "BatchSamplerShard", "DistributedSamplerWrapper", "DistributedLengthGroupedSampler")
_batches = collections.deque(maxlen=_MOST)
_done = False
_rows = None  # led.Rows, of a short run
content_of = None  # of_rows', where that is asked for


class _Batch:
    """What is remembered of a batch that a loader has yielded: nothing that keeps its tensors, or the data set, alive.

    `storages`: where its tensors lie; a weak reference keeps the number of a storage, not its memory, from becoming another's. `prints`: of
    tensors that a trainer may copy before it uses them. `divided`: among how many ranks the sampler divides the data set (0: among all there
    are); None: it does not.
    """

    def __init__(self, batch, ids, divided):
        found = list(tensors(batch))
        self.ids, self.divided = ids, divided
        self.content = content_of(batch, len(ids)) if content_of is not None else (None, None)  # until it is recorded
        self.storages = [place for place in map(_place, found) if place]
        self.prints = {_print(t) for t in found if t.device.type == "cpu"}

    def holds(self, place):
        return any(place[0].cdata == ref.cdata and low <= place[1] and place[2] <= high for ref, low, high in self.storages)


def tensors(value, depth=0):
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each, depth + 1)
    elif depth < 4 and isinstance(value, collections.abc.Mapping):
        for each in value.values():
            yield from tensors(each, depth + 1)


def _place(tensor):
    """Its storage, and where in it the tensor begins and ends; None if it has none."""
    try:
        size, low = tensor.element_size(), tensor.storage_offset()
        last = low + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
        return (StorageWeakRef(tensor.untyped_storage()), low * size, (last + 1) * size) if tensor.numel() else None
    except (RuntimeError, NotImplementedError):
        return None


def _print(tensor):
    """Shape, type and some of the elements, at a distance that no row has."""
    some = tensor.detach().reshape(-1)[:: tensor.numel() // _SAMPLED | 1]
    return tuple(tensor.shape), tensor.dtype, hash(hashing.raw(hashing.plain(some)))


def _divided(loader):
    """See `_Batch`."""
    samplers, seen = [loader.batch_sampler, loader.sampler], set()
    while samplers:
        sampler = samplers.pop()
        if sampler is None or id(sampler) in seen:
            continue
        seen.add(id(sampler))
        if type(sampler).__name__ in _DIVIDING:
            return getattr(sampler, "num_replicas", getattr(sampler, "num_processes", 0))
        samplers += [getattr(sampler, "sampler", None), getattr(sampler, "batch_sampler", None)]
    return None


def _ids(dataset, indices):
    while isinstance(dataset, Subset):
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    return [int(i) for i in indices]


def _remember(loader, index, batch, divided):
    if isinstance(index, (list, tuple)) and all(isinstance(i, int) for i in index):
        with contextlib.suppress(Exception):  # of whatever kind of tensor it is
            _batches.append(_Batch(batch, _ids(loader.dataset, index), divided))


def install(rows=None):
    """Once a process: batches are remembered as loaders yield them. `rows`: sees what they ask for, and may give them other rows."""
    global _done, _rows
    _rows = rows
    if _done:
        return
    _done = True
    kind = dataloader._BaseDataLoaderIter
    init, fetch, following = kind.__init__, kind._next_index, kind.__next__

    @functools.wraps(init)
    def made(self, loader, *args, **kwargs):
        self._probe_asked, self._probe_loader = collections.deque(), loader
        init(self, loader, *args, **kwargs)

    @functools.wraps(fetch)
    def asked(self):
        index = fetch(self)
        if hasattr(self, "_probe_asked"):  # not one that was made before the probe
            given = index if _rows is None else _rows.given(self._probe_loader, index)
            self._probe_asked.append((given, given is not index))
            return given
        return index

    @functools.wraps(following)
    def yielded(self):
        batch = following(self) if float64.on is None else float64.widen(following(self))
        asked = getattr(self, "_probe_asked", None)
        if asked:
            index, is_whole = asked.popleft()  # the reference's numbers are those of the whole data set
            if _rows is not None:
                _rows.took(index)
            _remember(self._probe_loader, index, batch, 0 if is_whole else _divided(self._probe_loader))
        return batch

    kind.__init__, kind._next_index, kind.__next__ = made, asked, yielded


def _holders(given):
    """Batches that these tensors may be of. A trainer that moves batches copies them: then all tensors (but for numbers) have the values of
    some of a batch's."""
    places = [place for place in map(_place, given) if place]
    found = [batch for batch in _batches if any(map(batch.holds, places))]
    prints = {_print(t) for t in given if t.dim()} if not found else ()
    return found or [batch for batch in _batches if prints and prints <= batch.prints]


def ids_of(inputs, world_size, seen):
    """Sample ids of the batch that one of these tensors is of; none if there is no such batch, if it may be another one, or if its numbers
    are a rank's own.

    `seen`: batches that the step has taken already, which a second forward pass over them adds nothing to.
    """
    found = _holders(list(tensors(inputs)))
    if not found or any(batch.ids != found[0].ids for batch in found):
        return []
    if any(batch in seen for batch in found) or not (world_size == 1 or found[-1].divided in (0, world_size)):
        return []
    seen.append(found[-1])
    return found[-1].ids
