"""The trace file of a rank, as docs/trace.md describes it: format 2, written a step at a time, and read back by runs that it leads."""

import dataclasses
import json
import math
import os
import struct

import torch

from lockstep_probe.hashing import DTYPES, varint

PHASES = {
    "snapshot": 0, "samples": 1, "random": 2, "control": 3, "energies": 4, "loss": 5, "local gradients": 6,
    "collective": 7, "reduced gradients": 8, "gradient norm": 9, "parameters": 10, "evaluation": 11,
    "applied gradients": 13, "optimizer state": 14, "inputs": 15, "gradient parts": 16, "averaged weights": 17,
}  # fmt: skip
SAMPLES, RANDOM, SCALAR, TENSOR, COLLECTIVE = range(5)
ALIKE, STATISTICS, IDS, VALUES, DOT, PLACEMENT = 1, 2, 4, 8, 16, 32
HEADER, STEP, FAILED_STEP, END, PART = range(1, 6)
MOST_BYTES = 1 << 28  # of a frame; a larger step is written in parts
MAGIC = b"LSTRACE\n" + struct.pack("<I", 2)


def signed(value):
    return varint((value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1)


def text(value):
    data = value.encode()[:1024]
    return varint(len(data)) + data


def ids_field(ids):
    return varint(len(ids)) + b"".join(map(signed, ids))


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a rank's part lies in the whole tensor; `shard` False: every rank holds the whole."""

    whole: tuple
    offset: tuple
    shard: bool

    @property
    def first(self):
        """The position of the part's first row; -1 if the tensor has no dimension."""
        return self.offset[0] if self.whole else -1

    def field(self):
        extents = b"".join(signed(w) + signed(o) for w, o in zip(self.whole, self.offset))
        return bytes([1 if self.shard else 0]) + extents


class Definition:
    """What records of one place share. Its number in the file comes with its first record."""

    __slots__ = ("bytes", "extents", "first", "flags", "number", "shape", "dtype")

    def __init__(self, kind, phase, name, *, flags=0, dtype=0, root=-1, shape=(), more=b""):
        body = bytes([kind, PHASES[phase], flags, dtype]) + signed(root) + varint(len(shape))
        self.bytes = body + b"".join(signed(extent) for extent in shape) + text(name) + more
        self.flags, self.number = flags, -1


class Writer:
    """Writes whole steps. Raises OSError; the file then ends with the last whole frame."""

    def __init__(self, path, hashes):
        self.path, self._xxh3 = path, hashes.xxh3
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.end = 0
        self._definitions, self._sequences, self.steps = 0, {}, 0
        self._append(MAGIC)

    def _append(self, data):
        view, done = memoryview(data), 0
        try:
            while done < len(view):
                done += os.write(self._file, view[done:])
        except OSError:
            os.ftruncate(self._file, self.end)
            raise
        self.end += done

    def _frame(self, kind, pieces):
        payload = b"".join(pieces)
        head = struct.pack("<IB", len(payload), kind)
        whole = head + struct.pack("<I", self._xxh3(head) & 0xFFFFFF)[:3] + payload
        self._append(whole + struct.pack("<Q", self._xxh3(whole)))

    def header(self, fields):
        self._frame(HEADER, [json.dumps(fields).encode()])

    def step(self, step, records, kind=STEP):
        """`records`: definition and bytes of each."""
        part, size = [], 0
        for record in ((definition, bytes(data)) for definition, data in records):
            if part and size + len(record[1]) > MOST_BYTES:
                self._part(PART, step, part)
                part, size = [], 0
            part.append(record)
            size += len(record[1])
        self._part(kind, step, part)
        self.steps += 1

    def _part(self, kind, step, records):
        new, numbers = [], []
        for definition, _ in records:
            if definition.number < 0:
                definition.number = self._definitions
                self._definitions += 1
                new.append(definition)
            numbers.append(definition.number)
        key = tuple(numbers)
        pieces = [signed(step)]
        known = self._sequences.get(key)
        if known is not None:
            pieces.append(varint(known))
        else:
            self._sequences[key] = len(self._sequences) + 1
            pieces += [varint(0), varint(len(numbers))]
            for definition, _ in records:
                pieces.append(varint(definition.number))
                if new and definition is new[0]:
                    pieces += [varint(len(definition.bytes)), new.pop(0).bytes]
        pieces += [data for _, data in records]
        self._frame(kind, pieces)

    def finish(self, whole):
        if whole:
            self._frame(END, [varint(self.steps)])
        os.close(self._file)


class Bytes:
    """Reads numbers one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise ValueError("ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def signed(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def text(self):
        return bytes(self.take(self.varint())).decode()


@dataclasses.dataclass
class Kept:
    """A record that keeps its values, or sample ids."""

    phase: int
    name: str
    values: "torch.Tensor | None" = None
    ids: tuple = ()
    placement: "Placement | None" = None
    hash: int = 0


TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}


def _definition(data):
    b = Bytes(data)
    kind, phase, flags, dtype = b.take(4)
    b.signed()
    shape = tuple(b.signed() for _ in range(b.varint()))
    name = b.text()
    if kind == COLLECTIVE:
        b.text(), b.text(), b.text()
    placement = None
    if flags & PLACEMENT:
        shard = b.take(1)[0] == 1
        pairs = [(b.signed(), b.signed()) for _ in shape]
        placement = Placement(tuple(w for w, _ in pairs), tuple(o for _, o in pairs), shard)
    return kind, phase, flags, dtype, shape, name, placement


def _record(b, definition):
    kind, phase, flags, dtype, shape, name, placement = definition
    if kind == SAMPLES:
        return Kept(phase, name, ids=tuple(b.signed() for _ in range(b.varint())))
    if kind == RANDOM:
        hash_ = struct.unpack("<Q", b.take(8))[0]
        b.varint()
        return Kept(phase, name, hash=hash_)
    if kind == SCALAR:
        return Kept(phase, name, torch.tensor(struct.unpack("<d", b.take(8))[0], dtype=torch.float64))
    if kind == COLLECTIVE:
        b.take(16)
        return None
    hash_ = struct.unpack("<Q", b.take(8))[0]
    if flags & STATISTICS:
        b.take(24 if dtype in (1, 2, 6) else 12)
        b.varint()
    if flags & DOT:
        b.take(8)
    ids = tuple(b.signed() for _ in range(b.varint())) if flags & IDS else ()
    values = None
    if flags & VALUES:
        kind = TORCH_DTYPES[dtype]
        raw = bytearray(b.take(math.prod(shape) * kind.itemsize))
        values = torch.frombuffer(raw, dtype=kind).reshape(shape) if raw else torch.zeros(shape, dtype=kind)
    return Kept(phase, name, values, ids, placement, hash_)


def frames(path):
    """(kind, payload) of each that is whole."""
    with open(path, "rb") as file:
        if file.read(12) != MAGIC:
            raise ValueError(f"{path} is not a trace of format 2")
        while len(head := file.read(8)) == 8:
            length, kind = struct.unpack("<IB", head[:5])
            payload = file.read(length)
            if len(payload) < length or len(file.read(8)) < 8:
                return
            yield kind, payload


def read_steps(path):
    """Yields (step, [Kept]) of a trace that this probe or lockstep has written; the checks are left to `lockstep compare`.

    Raises ValueError if the file is no trace of format 2 or ends early.
    """
    definitions, sequences, before = [], [], []
    for kind, payload in frames(path):
        if kind not in (STEP, FAILED_STEP, PART):
            continue
        b = Bytes(memoryview(payload))
        step, known = b.signed(), b.varint()
        if known:
            numbers = sequences[known - 1]
        else:
            numbers = []
            for _ in range(b.varint()):
                numbers.append(b.varint())
                if numbers[-1] == len(definitions):
                    definitions.append(_definition(b.take(b.varint())))
            sequences.append(numbers)
        before += [r for r in (_record(b, definitions[n]) for n in numbers) if r is not None]
        if kind != PART:
            yield step, before
            before = []


def header_of(path):
    """The header's fields. Raises ValueError, OSError."""
    for kind, payload in frames(path):
        if kind == HEADER:
            return json.loads(payload)
    raise ValueError(f"{path} has no header")
