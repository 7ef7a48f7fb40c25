"""Sample ids without a line in the trainer: those of the DataLoader's batch whose tensors a forward pass takes.

Only where the numbers are those of the whole data set: in one process, or with a sampler that divides it among the ranks. A rank's own data
set has numbers of its own, which would be mistaken for others' rows.
"""

import collections
import functools

import torch
from torch.utils.data import Subset, dataloader

_MOST = 16  # batches that a loader may have fetched ahead of the forward pass: those of an accumulation, and one more
_DIVIDING = ("DistributedSampler", "BatchSamplerShard", "DistributedSamplerWrapper", "DistributedLengthGroupedSampler")
_batches = collections.deque(maxlen=_MOST)
_done = False


def _tensors(value, depth=0):
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each, depth + 1)
    elif depth < 4 and isinstance(value, collections.abc.Mapping):
        for each in value.values():
            yield from _tensors(each, depth + 1)


def _storage(tensor):
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _divides(loader, world_size):
    samplers, seen = [loader.batch_sampler, loader.sampler], set()
    while samplers:
        sampler = samplers.pop()
        if sampler is None or id(sampler) in seen:
            continue
        seen.add(id(sampler))
        if type(sampler).__name__ in _DIVIDING and getattr(sampler, "num_replicas", getattr(sampler, "num_processes", world_size)) == world_size:
            return True
        samplers += [getattr(sampler, "sampler", None), getattr(sampler, "batch_sampler", None)]
    return False


def _ids(dataset, indices):
    while isinstance(dataset, Subset):
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    return [int(i) for i in indices]


def install():
    """Once a process: batches are remembered as loaders yield them."""
    global _done
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
            self._probe_asked.append(index)
        return index

    @functools.wraps(following)
    def yielded(self):
        batch = following(self)
        asked = getattr(self, "_probe_asked", None)
        index = asked.popleft() if asked else None
        if isinstance(index, (list, tuple)) and all(isinstance(i, int) for i in index):
            storages = {_storage(t): t for t in _tensors(batch)}  # the tensors live as long: their memory cannot be another's
            _batches.append((self._probe_loader, index, storages))
        return batch

    kind.__init__, kind._next_index, kind.__next__ = made, asked, yielded


def _is_copy(given, batch):
    """Have all tensors of a forward pass (but for numbers) the values of one of the batch's? A trainer that moves batches copies them."""
    given = [t for t in given if t.dim()]
    return bool(given) and all(
        any(t.shape == kept.shape and t.dtype == kept.dtype and torch.equal(t.detach().to(kept.device), kept) for kept in batch) for t in given)


def ids_of(inputs, world_size, seen):
    """Sample ids of the batch that one of these tensors is of; none if there is no such batch, or its numbers are a rank's own.

    `seen`: batches that the step has taken already, which a second forward pass over them adds nothing to.
    """
    given = list(_tensors(inputs))
    taken = {_storage(t) for t in given} - {0}
    for loader, index, storages in reversed(_batches):
        if not taken & storages.keys() and not _is_copy(given, storages.values()):
            continue
        if any(index is other for other in seen) or not (world_size == 1 or _divides(loader, world_size)):
            return []
        seen.append(index)
        return _ids(loader.dataset, index)
    return []
