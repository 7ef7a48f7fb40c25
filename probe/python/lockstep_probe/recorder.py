"""Records of one step of one rank, on their way into its trace."""

import contextlib
import importlib
import struct

from lockstep_probe import trace_file as file
from lockstep_probe.hashing import DTYPES, WIDE, Later, plain, raw, varint
from lockstep_probe.trace_file import Definition


class Recorder:
    """Makes records. `stats_of_alike`: does this rank keep statistics of what is equal on all ranks (rank 0 does)?"""

    def __init__(self, hashes, level, stats_of_alike):
        self.hashes, self.level, self._stats_of_alike = hashes, level, stats_of_alike
        self._tensors, self._others = {}, {}
        self._devices, self._computes = {}, None  # GPUs, by their number; device_hash, or False where it cannot be had

    # Tensors on a GPU are hashed there.

    def can_compute(self, tensor):
        """On the GPU that the tensor is on. Triton comes with PyTorch for CUDA, but may be missing."""
        if self._computes is None:
            try:
                self._computes = importlib.import_module("lockstep_probe.device_hash")
            except ImportError:
                self._computes = False
        return bool(self._computes) and tensor.numel() > 0

    def _device(self, tensor):
        found = self._devices.get(tensor.device)
        if found is None:
            found = self._devices[tensor.device] = self._computes.Device(tensor.device)
        return found

    @contextlib.contextmanager
    def together(self):
        """Tensors of several records, none of which changes meanwhile: a GPU is asked for all at once."""
        opened = [device for device in self._devices.values() if not device.is_open]
        for device in opened:
            device.is_open = True
        try:
            yield
        finally:
            for device in opened:
                device.is_open = False
                device.launch()

    def fetch(self):
        """Asks GPUs for what they have computed, without waiting: batches that say when they are there."""
        return [device.fetch() for device in self._devices.values()]

    def number(self, value):
        """A float of a number or a tensor; of a GPU's tensor a Later."""
        if not hasattr(value, "detach"):
            return float(value)
        value = value.detach()
        if value.is_cuda and value.numel() == 1 and self.can_compute(value):
            return self._device(value).number(value)
        return float(value)

    def _definition(self, key, *args, **kwargs):
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = Definition(*args, **kwargs)
        return found

    def samples(self, ids):
        return self._definition("samples", file.SAMPLES, "samples", "samples", dtype=2), file.ids_field(ids)

    def random(self, stream, hash_, draws):
        return self._definition(("random", stream), file.RANDOM, "random", stream), struct.pack("<Q", hash_) + varint(draws)

    def scalar(self, phase, name, value, alike=False):
        flags = file.ALIKE if alike else 0
        data = Later(lambda: struct.pack("<d", value.get())) if isinstance(value, Later) else struct.pack("<d", value)
        return self._definition((phase, name, flags), file.SCALAR, phase, name, flags=flags, dtype=1), data

    def collective(self, call, group, tag, given, got, dtype, shape):
        """`given`, `got`: hashes of the tensors that went in and came out."""
        more = file.text(call.reduction or "") + file.text(group) + file.text(tag)
        key = ("collective", call.op, call.root, dtype, shape, more)
        pack = lambda: struct.pack("<QQ", *(sum(map(int, each)) & (1 << 64) - 1 for each in (given, got)))  # noqa: E731
        data = Later(pack) if any(isinstance(each, Later) for each in (*given, *got)) else pack()
        return self._definition(key, file.COLLECTIVE, "collective", call.op, dtype=dtype, root=call.root, shape=shape, more=more), data

    def tensor(self, phase, name, tensor, *, alike=False, ids=None, dot=None, placement=None, values=False):
        """`values`: keep them. `dot`: with the rank's local gradient of the same parameter."""
        hash_alone = not values and ids is None and dot is None
        tensor = plain(tensor, there=tensor.is_cuda and hash_alone and self.can_compute(tensor))
        stats = not alike or self._stats_of_alike or self.level != "hash" or dot is not None
        flags = (file.ALIKE if alike else 0) | (file.STATISTICS if stats else 0) | (file.VALUES if values else 0)
        flags |= (file.IDS if ids is not None else 0) | (file.DOT if dot is not None else 0) | (file.PLACEMENT if placement else 0)
        key, known = (phase, name, flags), self._tensors.get((phase, name, flags))
        if known is None or known.shape != tensor.shape or known.dtype != tensor.dtype or known.first[1] != placement:
            # A batch may have another size in another step: each form has a definition of its own.
            form = (phase, name, flags, tuple(tensor.shape), tensor.dtype, placement)
            known = self._others.get(form)
            if known is None:
                more = placement.field() if placement else b""
                shape = tuple(tensor.shape)
                known = Definition(file.TENSOR, phase, name, flags=flags, dtype=DTYPES[tensor.dtype], shape=shape, more=more)
                known.shape, known.dtype = tensor.shape, tensor.dtype
                known.extents, known.first = self.hashes.extents(shape), (placement.first if placement else -1, placement)
                self._others[form] = known
            self._tensors[key] = known
        if tensor.is_cuda:
            made = _with_statistics(known.dtype) if stats else _alone
            return known, self._device(tensor).hash(tensor, known.first[0], made)
        if stats:
            data = self.hashes.tensor_record(tensor, known.extents, known.first[0])
        else:
            data = struct.pack("<Q", self.hashes.tensor_hash(tensor, known.extents, known.first[0]))
        if dot is not None:
            data += struct.pack("<d", dot)
        if ids is not None:
            data += file.ids_field(ids)
        if values:
            data += raw(tensor)
        return known, data

    def hash_of(self, tensor):
        """Of a GPU's tensor a Later."""
        tensor = plain(tensor, there=tensor.is_cuda and self.can_compute(tensor))
        if tensor.is_cuda:
            return self._device(tensor).hash(tensor, -1, lambda word, *_: word)
        return self.hashes.tensor_hash(tensor, self.hashes.extents(tensor.shape))


def _alone(word, *_):
    return struct.pack("<Q", word)


def _with_statistics(dtype):
    numbers = "<Q3d" if DTYPES[dtype] in WIDE else "<Q3f"
    return lambda word, norm, low, high, others: struct.pack(numbers, word, norm, low, high) + varint(others)


def hash_in(record):
    """The hash that a tensor's record holds."""
    return struct.unpack_from("<Q", bytes(record[1]))[0]
