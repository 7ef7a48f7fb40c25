"""The two hashes of docs/trace.md without a C library. XXH3: xxHash's specification, XXH3_64bits with seed 0."""

import math

import torch

WORD = (1 << 64) - 1
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)  # fmt: skip
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def _word(data, at, size=8):
    return int.from_bytes(data[at : at + size], "little")


def _fold(a, b):
    product = a * b
    return product & WORD ^ product >> 64


def _avalanche(x):
    x = (x ^ x >> 37) * 0x165667919E3779F9 & WORD
    return x ^ x >> 32


def _avalanche_64(x):
    x = (x ^ x >> 33) * P64[1] & WORD
    x = (x ^ x >> 29) * P64[2] & WORD
    return x ^ x >> 32


def _mix16(data, at, secret):
    return _fold(_word(data, at) ^ _word(SECRET, secret), _word(data, at + 8) ^ _word(SECRET, secret + 8))


def _short(data):
    n = len(data)
    if n > 8:
        low = _word(data, 0) ^ (_word(SECRET, 24) ^ _word(SECRET, 32))
        high = _word(data, n - 8) ^ (_word(SECRET, 40) ^ _word(SECRET, 48))
        return _avalanche(n + int.from_bytes(low.to_bytes(8, "little"), "big") + high + _fold(low, high) & WORD)
    if n >= 4:
        x = _word(data, n - 4, 4) + (_word(data, 0, 4) << 32) ^ (_word(SECRET, 8) ^ _word(SECRET, 16))
        x ^= ((x << 49 | x >> 15) ^ (x << 24 | x >> 40)) & WORD
        x = x * 0x9FB21C651E98DF25 & WORD
        x = (x ^ (x >> 35) + n) * 0x9FB21C651E98DF25 & WORD
        return x ^ x >> 28
    if n:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[-1] | n << 8
        return _avalanche_64(combined ^ (_word(SECRET, 0, 4) ^ _word(SECRET, 4, 4)))
    return _avalanche_64(_word(SECRET, 56) ^ _word(SECRET, 64))


def _middle(data):
    n = len(data)
    total = n * P64[0]
    if n <= 128:
        for i in reversed(range((n - 1) // 32 + 1)):
            total += _mix16(data, 16 * i, 32 * i) + _mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche(total & WORD)
    for i in range(8):
        total += _mix16(data, 16 * i, 16 * i)
    total = _avalanche(total & WORD)
    for i in range(8, n // 16):
        total += _mix16(data, 16 * i, 16 * (i - 8) + 3)
    return _avalanche(total + _mix16(data, n - 16, 136 - 17) & WORD)


def _signed(words):
    return torch.tensor([w - (1 << 64) if w >> 63 else w for w in words], dtype=torch.int64)


def _contributions(stripes, secrets):
    """What stripes [.., 8] add to the eight sums, each with its part of the secret [.., 8]."""
    keys = stripes ^ secrets
    products = (keys & 0xFFFFFFFF) * (keys >> 32 & 0xFFFFFFFF)
    return stripes[..., [1, 0, 3, 2, 5, 4, 7, 6]] + products


def _long(data):
    n = len(data)
    words = torch.frombuffer(bytearray(data[: n // 8 * 8]), dtype=torch.int64)
    secret = lambda at: _signed([_word(SECRET, at + 8 * i) for i in range(8)])  # noqa: E731
    secrets = torch.stack([secret(8 * s) for s in range(16)])
    blocks = (n - 1) // 1024
    whole = _contributions(words[: blocks * 128].reshape(blocks, 16, 8), secrets).sum(1) if blocks else torch.zeros(0, 8)
    sums = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    last = [_word(SECRET, 128 + 8 * i) for i in range(8)]
    for block in whole.tolist():
        for i in range(8):
            x = sums[i] + block[i] & WORD
            sums[i] = (x ^ x >> 47 ^ last[i]) * P32[0] & WORD
    rest = (n - 1 - 1024 * blocks) // 64
    stripes = words[blocks * 128 : blocks * 128 + rest * 8].reshape(rest, 8)
    added = _contributions(stripes, secrets[:rest]).sum(0) if rest else torch.zeros(8, dtype=torch.int64)
    added = added + _contributions(torch.frombuffer(bytearray(data[-64:]), dtype=torch.int64), secret(192 - 64 - 7))
    sums = [s + a & WORD for s, a in zip(sums, added.tolist())]
    total = n * P64[0]
    for i in range(4):
        total += _fold(sums[2 * i] ^ _word(SECRET, 11 + 16 * i), sums[2 * i + 1] ^ _word(SECRET, 19 + 16 * i))
    return _avalanche(total & WORD)


def xxh3(data):
    return _short(data) if len(data) <= 16 else _middle(data) if len(data) <= 240 else _long(data)


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
    return _signed([mask for mask, _ in pairs]), _signed([key for _, key in pairs])


_MASKS, _KEYS = masks_and_keys()


def _row_hash(words, row_key):
    total = 0
    for block, begin in enumerate(range(0, max(len(words), 1), 1024)):
        piece = words[begin : begin + 1024]
        s = int(((piece ^ _MASKS[: len(piece)]) * _KEYS[: len(piece)]).sum()) & WORD if len(piece) else 0
        total += mix((s + row_key + block * 0x9E3779B97F4A7C15) & WORD)
    return total & WORD


def shape_key(dtype, shape):
    """`shape`: without the first extent, if rows have positions."""
    key = mix(dtype + 0x7472616365)
    for extent in shape:
        key = mix((key + extent + 0x9E3779B97F4A7C15) & WORD)
    return key


def tensor_hash(tensor, dtype, positions=None):
    """H(tensor) of docs/trace.md. `dtype`: its number; `positions`: of the rows in the whole, or None."""
    shape = list(tensor.shape)
    if shape and shape[0] == 0:
        return 0
    key = shape_key(dtype, shape[1:] if positions is not None else shape)
    size = tensor.element_size()
    flat = tensor.reshape(-1)
    kind, mask = {1: (torch.uint8, 0xFF), 2: (torch.int16, 0xFFFF), 4: (torch.int32, 0xFFFFFFFF), 8: (torch.int32, 0xFFFFFFFF)}[size]
    words = flat.view(kind).to(torch.int64) & mask
    if positions is None:
        return _row_hash(words, mix(key))
    rows = words.reshape(shape[0], math.prod(shape[1:]) * max(size // 4, 1))
    return sum(_row_hash(row, mix((key + p * 0xD1B54A32D192ED03) & WORD)) for row, p in zip(rows, positions)) & WORD
