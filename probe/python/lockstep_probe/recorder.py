"""Records of one step of one rank, on their way into its trace."""

import struct

from lockstep_probe import trace_file as file
from lockstep_probe.hashing import DTYPES, plain, raw, varint
from lockstep_probe.trace_file import Definition


class Recorder:
    """Makes records. `stats_of_alike`: does this rank keep statistics of what is equal on all ranks (rank 0 does)?"""

    def __init__(self, hashes, level, stats_of_alike):
        self.hashes, self.level, self._stats_of_alike = hashes, level, stats_of_alike
        self._tensors, self._others = {}, {}

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
        return self._definition((phase, name, flags), file.SCALAR, phase, name, flags=flags, dtype=1), struct.pack("<d", value)

    def collective(self, call, group, tag, hash_in, hash_out, dtype, shape):
        more = file.text(call.reduction or "") + file.text(group) + file.text(tag)
        key = ("collective", call.op, call.root, dtype, shape, more)
        data = struct.pack("<QQ", hash_in, hash_out)
        return self._definition(key, file.COLLECTIVE, "collective", call.op, dtype=dtype, root=call.root, shape=shape, more=more), data

    def tensor(self, phase, name, tensor, *, alike=False, ids=None, dot=None, placement=None, values=False):
        """`values`: keep them. `dot`: with the rank's local gradient of the same parameter."""
        tensor = plain(tensor)
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
        tensor = plain(tensor)
        return self.hashes.tensor_hash(tensor, self.hashes.extents(tensor.shape))


def hash_in(record):
    """The hash that a tensor's record holds."""
    return struct.unpack_from("<Q", record[1])[0]
