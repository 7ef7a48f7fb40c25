"""Hashes of tensors and frames, by a small C library that comes with lockstep.

docs/trace.md defines them. A tensor here is contiguous, dense and in the machine's own memory; device_hash has a GPU's.
"""

import ctypes
import importlib.util
import os
import pathlib

import torch

DTYPES = {
    torch.float32: 0, torch.float64: 1, torch.int64: 2, torch.bfloat16: 3, torch.bool: 4, torch.float16: 5,
    torch.int32: 6,
}  # fmt: skip
WIDE = (1, 2, 6)  # their statistics are of 64 bits
VERSION = 1
FILE = "liblockstep_hash.so"


def places():
    """Where the library may lie, the most particular place first."""
    if os.environ.get("LOCKSTEP_HASH"):
        yield pathlib.Path(os.environ["LOCKSTEP_HASH"])
    here = pathlib.Path(__file__).resolve().parent
    yield here / FILE
    found = importlib.util.find_spec("lockstep_hash")
    if found and found.submodule_search_locations:
        yield pathlib.Path(next(iter(found.submodule_search_locations))) / FILE
    yield here.parents[2] / "build" / "release" / "bin" / FILE  # a checkout


class Native:
    def __init__(self, library):
        word, pointer = ctypes.c_uint64, ctypes.c_void_p
        self._xxh3, self._hash = library.lockstep_xxh3, library.lockstep_tensor_hash
        self._record, self._rows = library.lockstep_tensor_record, library.lockstep_row_hashes
        self._xxh3.restype, self._xxh3.argtypes = word, [ctypes.c_char_p, word]
        tensor = [pointer, ctypes.c_int, ctypes.c_int, pointer, ctypes.c_int64]
        self._hash.restype, self._hash.argtypes = word, tensor
        self._record.restype, self._record.argtypes = ctypes.c_int, [*tensor, pointer]
        self._rows.restype, self._rows.argtypes = None, [pointer, ctypes.c_int, ctypes.c_int, pointer, pointer]

    @staticmethod
    def extents(shape):
        """A shape as the library takes it: made once for each definition."""
        return (ctypes.c_int64 * max(len(shape), 1))(*shape)

    def xxh3(self, data):
        return self._xxh3(data, len(data))

    def tensor_hash(self, tensor, extents, first=-1):
        return self._hash(tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim(), extents, first)

    def tensor_record(self, tensor, extents, first=-1):
        """The bytes of hash and statistics as a record has them."""
        buffer = ctypes.create_string_buffer(48)
        count = self._record(tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim(), extents, first, buffer)
        return buffer.raw[:count]

    def row_hashes(self, tensor):
        """Of each row its hash as a tensor of its own: int64 [rows]."""
        hashes = torch.zeros(tensor.shape[0], dtype=torch.int64)
        self._rows(tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim(), self.extents(tensor.shape), hashes.data_ptr())
        return hashes


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def load():
    """Raises RuntimeError where it is not found."""
    for place in places():
        try:
            library = ctypes.CDLL(str(place))
            if library.lockstep_hash_version() == VERSION:
                return Native(library)
        except (OSError, AttributeError):
            continue
    raise RuntimeError(f"{FILE} is not found; the wheel of lockstep brings it, and LOCKSTEP_HASH may name it")


class Later:
    """Bytes of a record, or a number, that a device has not given yet. Asked for them, it waits."""

    __slots__ = ("_make", "_value", "at", "batch")

    def __init__(self, make):
        self._make, self._value, self.batch = make, None, None

    def get(self):
        if self._make is not None:
            self._value, self._make, self.batch = self._make(), None, None
        return self._value

    __bytes__ = __float__ = __int__ = get


def dtype_of(tensor):
    """The number of the dtype that a trace has it in."""
    if tensor.is_complex():
        return DTYPES[tensor.real.dtype]
    return DTYPES.get(tensor.dtype, DTYPES[torch.float32 if tensor.is_floating_point() else torch.int32])


def plain(tensor, there=False):
    """The same values as a dense, contiguous tensor of a dtype that traces have, on the CPU; `there`: or on its GPU."""
    tensor = tensor.detach()
    if hasattr(tensor, "wait") and type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype not in DTYPES:
        tensor = tensor.to(torch.float32 if tensor.is_floating_point() else torch.int32)
    if tensor.device.type != "cpu" and not (there and tensor.is_cuda):
        tensor = tensor.cpu()
    if not tensor.is_contiguous():
        return tensor.contiguous()
    if tensor.numel() and not tensor.data_ptr():
        raise ValueError(f"a tensor of shape {list(tensor.shape)} has no memory at this moment")
    return tensor


def raw(tensor):
    """The bytes of a plain tensor's values."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""
