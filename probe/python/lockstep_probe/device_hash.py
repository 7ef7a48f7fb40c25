"""Hashes and statistics of tensors on a GPU, computed there: what the C library writes, with no copy of the tensor and no wait.

A kernel makes five numbers of each chunk of up to 8 blocks of 1,024 words, in a grid over the chunks of all tensors that are
given together; a second one adds them up, once a step, tensor by tensor, in a fixed order. They come to the machine together.
"""

import contextlib
import math
import struct

import torch
import triton
import triton.language as tl

from lockstep_probe.hashing import DTYPES, Later

# A tensor in the table: address, words of a row, chunks of a row, first chunk, key, position of the first row.
FIELDS = 6
CHUNK = tl.constexpr(8)  # blocks
MOST_TABLES = 4096
MOST_WAITING = 64 << 20  # bytes of tensors that are gathered: some are copies, such as unscaled gradients
WORD = (1 << 64) - 1


def mix(x):
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD & WORD
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53 & WORD
    return x ^ (x >> 33)


def masks_and_keys():
    state = 0x6C6F636B73746570

    def draw():
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & WORD
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
        return z ^ (z >> 31)

    pairs = [(draw() >> 32, draw() | 1) for _ in range(1024)]
    return [torch.tensor([w - (1 << 64) if w >> 63 else w for w in words], dtype=torch.int64) for words in zip(*pairs)]


def shape_key(dtype, shape):
    """`shape`: without the first extent, if rows have positions."""
    key = mix(dtype + 0x7472616365)
    for extent in shape:
        key = mix((key + extent + 0x9E3779B97F4A7C15) & WORD)
    return key


@triton.jit
def _mix(x):
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53
    return x ^ (x >> 33)


@triton.jit
def _statistics(values, inside):
    finite = inside & (values == values) & (tl.abs(values) != float("inf"))
    norm = tl.sum(tl.where(finite, values * values, 0.0), 0)
    low = tl.min(tl.where(finite, values, float("inf")), 0)
    high = tl.max(tl.where(finite, values, float("-inf")), 0)
    others = tl.sum((inside & (finite == 0)).to(tl.int64), 0)
    return norm, low, high, others


@triton.jit
def _chunks(table, tensors, masks, keys, sums, DTYPE: tl.constexpr, SEARCH: tl.constexpr, FIELDS: tl.constexpr):
    """Of one chunk: its blocks' mixed sums added up; squares, smallest, largest and count of what is not finite."""
    at = tl.program_id(0).to(tl.int64)
    low, high = 0, tensors  # the tensor whose chunks hold this one: the last that begins here or before
    for _ in tl.static_range(SEARCH):
        middle = (low + high) // 2
        goes_on = high - low > 1
        before = tl.load(table + middle * FIELDS + 3) <= at
        low = tl.where(goes_on & before, middle, low)
        high = tl.where(goes_on & (before == 0), middle, high)
    of = table + low * FIELDS
    address, words, chunks, first = tl.load(of), tl.load(of + 1), tl.load(of + 2), tl.load(of + 3)
    row, chunk = (at - first) // chunks, (at - first) % chunks
    position = (tl.load(of + 5) + row).to(tl.uint64)
    key_of_row = _mix(tl.load(of + 4).to(tl.uint64, bitcast=True) + position * 0xD1B54A32D192ED03)
    lanes, halves = tl.arange(0, 1024), tl.arange(0, 512)
    mask = tl.load(masks + lanes).to(tl.uint64, bitcast=True)
    key = tl.load(keys + lanes).to(tl.uint64, bitcast=True)
    hashed, others = tl.full((), 0, tl.uint64), tl.full((), 0, tl.int64)
    squares = tl.full((), 0, tl.float64)
    smallest, largest = tl.full((), float("inf"), tl.float64), tl.full((), float("-inf"), tl.float64)
    key_of_block = key_of_row + (chunk * CHUNK).to(tl.uint64) * 0x9E3779B97F4A7C15
    for block in range(chunk * CHUNK, tl.minimum(chunk * CHUNK + CHUNK, (words + 1023) // 1024)):
        begin, left = row * words + block * 1024, words - block * 1024
        inside = lanes < left
        if DTYPE == 0 or DTYPE == 6 or DTYPE == 1 or DTYPE == 2:
            word = tl.load(address.to(tl.pointer_type(tl.int32)) + begin + lanes, inside, 0)
            wide = word.to(tl.uint32, bitcast=True).to(tl.uint64)
        elif DTYPE == 3 or DTYPE == 5:
            word = tl.load(address.to(tl.pointer_type(tl.int16)) + begin + lanes, inside, 0)
            wide = word.to(tl.uint16, bitcast=True).to(tl.uint64)
        else:
            word = tl.load(address.to(tl.pointer_type(tl.uint8)) + begin + lanes, inside, 0)
            wide = word.to(tl.uint64)
        total = tl.sum(tl.where(inside, (wide ^ mask) * key, 0), 0)
        hashed += _mix(total + key_of_block)
        key_of_block += 0x9E3779B97F4A7C15
        if DTYPE == 1 or DTYPE == 2:
            within = halves * 2 < left
            if DTYPE == 1:
                values = tl.load(address.to(tl.pointer_type(tl.float64)) + begin // 2 + halves, within, 0.0)
            else:
                values = tl.load(address.to(tl.pointer_type(tl.int64)) + begin // 2 + halves, within, 0).to(tl.float64)
            norm, least, most, strange = _statistics(values, within)
        else:
            if DTYPE == 0:
                values = word.to(tl.float32, bitcast=True).to(tl.float64)
            elif DTYPE == 3:
                values = word.to(tl.bfloat16, bitcast=True).to(tl.float32).to(tl.float64)
            elif DTYPE == 5:
                values = word.to(tl.float16, bitcast=True).to(tl.float64)
            else:
                values = word.to(tl.float64)
            norm, least, most, strange = _statistics(values, inside)
        squares, others = squares + norm, others + strange
        smallest, largest = tl.minimum(smallest, least), tl.maximum(largest, most)
    to = sums + at * 5
    tl.store(to, hashed.to(tl.int64, bitcast=True))
    tl.store(to + 1, squares.to(tl.int64, bitcast=True))
    tl.store(to + 2, smallest.to(tl.int64, bitcast=True))
    tl.store(to + 3, largest.to(tl.int64, bitcast=True))
    tl.store(to + 4, others)


@triton.jit
def _totals(ends, sums, totals, LANES: tl.constexpr):
    """Of one tensor, over its chunks: the same five."""
    tensor = tl.program_id(0)
    begin, end = tl.load(ends + tensor), tl.load(ends + tensor + 1)
    lanes = tl.arange(0, LANES)
    hashed, others = tl.zeros((LANES,), tl.int64), tl.zeros((LANES,), tl.int64)
    squares = tl.zeros((LANES,), tl.float64)
    smallest = tl.full((LANES,), float("inf"), tl.float64)
    largest = tl.full((LANES,), float("-inf"), tl.float64)
    for at in range(begin, end, LANES):
        of, inside = sums + (at + lanes) * 5, at + lanes < end
        hashed += tl.load(of, inside, 0)
        squares += tl.load(of + 1, inside, 0).to(tl.float64, bitcast=True)
        least = tl.load(of + 2, inside, 0).to(tl.float64, bitcast=True)
        most = tl.load(of + 3, inside, 0).to(tl.float64, bitcast=True)
        smallest = tl.minimum(smallest, tl.where(inside, least, float("inf")))
        largest = tl.maximum(largest, tl.where(inside, most, float("-inf")))
        others += tl.load(of + 4, inside, 0)
    to = totals + tensor * 5
    tl.store(to, tl.sum(hashed, 0))
    tl.store(to + 1, tl.sum(squares, 0).to(tl.int64, bitcast=True))
    tl.store(to + 2, tl.min(smallest, 0).to(tl.int64, bitcast=True))
    tl.store(to + 3, tl.max(largest, 0).to(tl.int64, bitcast=True))
    tl.store(to + 4, tl.sum(others, 0))


class Batch:
    """What comes to the machine's memory together: sums of tensors' chunks, and numbers. `room`: chunks that are expected."""

    def __init__(self, device, room):
        self.device, self._room, self._sums, self._ends, self._numbers = device, room, [], [], []
        self.chunks, self._streams, self._there, self._event = 0, {}, None, None

    def take(self, ends):
        """Room for tensors whose chunks end there. Returns it, and the number of the first among all tensors."""
        self._note_stream()
        if not self._sums or self._ends[-1][-1] + ends[-1] > len(self._sums[-1]) // 5:
            self._sums.append(torch.empty(5 * max(self._room, ends[-1]), dtype=torch.int64, device=self.device))
            self._ends.append([0])
        first, begin = sum(map(len, self._ends)) - len(self._ends), self._ends[-1][-1]
        self._ends[-1] += [begin + end for end in ends]
        self.chunks += ends[-1]
        return self._sums[-1][5 * begin :], first

    def add(self, number):
        self._note_stream()
        self._numbers.append(number.detach().to(torch.float64, copy=True).reshape(1))
        return len(self._numbers) - 1

    def _note_stream(self):
        if self.device.type == "cuda":
            number = triton.runtime.driver.active.get_current_stream(self.device.index)
            if number not in self._streams:  # a Stream costs 50 microseconds to make and to hash
                self._streams[number] = torch.cuda.current_stream(self.device)

    def fetch(self, sent):
        """Once: asks for all, without waiting. `sent`: puts numbers on the device."""
        now = torch.cuda.current_stream(self.device) if self._streams else None
        for stream in set(self._streams.values()) - {now}:
            now.wait_stream(stream)
            for tensor in self._sums + self._numbers:
                tensor.record_stream(now)
                tensor.record_stream(stream)
        found = [torch.cat(self._numbers).view(torch.int64)] if self._numbers else []
        for sums, ends in zip(self._sums, self._ends):
            found.append(torch.empty(5 * (len(ends) - 1), dtype=torch.int64, device=self.device))
            _totals[(len(ends) - 1,)](sent(tuple(ends)), sums, found[-1], LANES=256)
        whole = torch.cat(found) if found else torch.empty(0, dtype=torch.int64)
        self._sums = []
        if whole.is_cuda:
            self._there = torch.empty(whole.shape, dtype=torch.int64, pin_memory=True).copy_(whole, non_blocking=True)
            self._event = now.record_event()
        else:
            self._there = whole

    def is_there(self):
        return self._event is None or self._event.query()

    def all(self):
        """Waits for them: numbers, and five of each tensor."""
        if isinstance(self._there, torch.Tensor):
            if self._event is not None:
                self._event.synchronize()
            whole, count = self._there.tolist(), len(self._numbers)
            self._there = whole[:count], whole[count:]
        return self._there


class Device:
    """The work of one GPU. While it `is_open` tensors are gathered, which must stay as they are meanwhile."""

    def __init__(self, device):
        self.device, self.is_open = device, False
        self._masks, self._keys = (each.to(device) for each in masks_and_keys())
        self._queue, self._waiting, self._keys_of, self._tables = [], 0, {}, {}
        self.batch = Batch(device, 4096)

    def hash(self, tensor, first, made):
        """`tensor`: plain, not empty; `first`: the position of its first row, or -1. Returns a Later of
        `made(hash, norm, low, high, others)`."""
        dtype, by_rows = DTYPES[tensor.dtype], first >= 0 and tensor.dim() > 0
        form = (dtype, tensor.shape, by_rows)
        known = self._keys_of.get(form)
        if known is None:
            key = shape_key(dtype, tensor.shape[1:] if by_rows else tensor.shape)
            rows = tensor.shape[0] if by_rows else 1
            words = tensor.numel() // rows * max(tensor.element_size() // 4, 1)
            signed = key - (1 << 64) if key >> 63 else key
            known = self._keys_of[form] = rows, words, -(-words // (1024 * CHUNK.value)), signed
        later = Later(lambda: made(*self._five(later)))
        self._queue.append((dtype, (tensor.data_ptr(), *known, max(first, 0)), tensor, later))
        self._waiting += 4 * known[0] * known[1]
        if not self.is_open or self._waiting > MOST_WAITING:
            self.launch()
        return later

    def number(self, tensor):
        """A Later of a scalar's value as a float."""
        later = Later(lambda: struct.unpack("<d", struct.pack("<q", self._all(later)[0][later.at]))[0])
        later.batch, later.at = self.batch, self.batch.add(tensor)
        return later

    def launch(self):
        queue, self._queue, self._waiting = self._queue, [], 0
        for dtype in dict.fromkeys(each[0] for each in queue):
            self._launch(dtype, [each for each in queue if each[0] == dtype])

    def _launch(self, dtype, queue):
        table, ends = [], [0]
        for _, (address, rows, words, chunks, key, first), _, _ in queue:
            table += [address, words, chunks, ends[-1], key, first]
            ends.append(ends[-1] + rows * chunks)
        elsewhere = self.device.type == "cuda" and torch.cuda.current_device() != self.device.index
        with torch.cuda.device(self.device) if elsewhere else contextlib.nullcontext():
            sums, number = self.batch.take(ends[1:])
            _chunks[(ends[-1],)](self._sent(tuple(table)), len(queue), self._masks, self._keys, sums,
                                 DTYPE=dtype, SEARCH=len(queue).bit_length(), FIELDS=FIELDS)  # fmt: skip
        for at, (*_, later) in enumerate(queue, number):
            later.batch, later.at = self.batch, at

    def _sent(self, numbers):
        """On the device: most tables are those of the step before."""
        found = self._tables.get(numbers)
        if found is None:
            if len(self._tables) >= MOST_TABLES:
                self._tables.clear()
            found = torch.tensor(numbers, dtype=torch.int64)
            if self.device.type == "cuda":
                found = found.pin_memory().to(self.device, non_blocking=True)
            self._tables[numbers] = found
        return found

    def _all(self, later):
        if later.batch is None or later.batch is self.batch:
            self.fetch()  # what follows is another's
        return later.batch.all()

    def _five(self, later):
        hashed, squares, low, high, others = self._all(later)[1][5 * later.at : 5 * later.at + 5]
        squares, low, high = struct.unpack("<3d", struct.pack("<3q", squares, low, high))
        return hashed & WORD, math.sqrt(squares), *((low, high) if low <= high else (0.0, 0.0)), others

    def fetch(self):
        """Asks for all that is not there yet, without waiting. Returns the batch that comes."""
        self.launch()
        batch, self.batch = self.batch, Batch(self.device, max(self.batch.chunks, 4096))
        batch.fetch(self._sent)
        return batch
