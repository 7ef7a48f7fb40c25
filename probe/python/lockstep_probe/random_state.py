"""States of the process's random generators at the beginning of a step, and the numbers taken since the one before."""

import random
import struct
import sys

import torch

from lockstep_probe.hashing import raw

_MOST_BLOCKS = 256
_WORDS = 624  # of a Mersenne twister's state


def _left(state):
    """Numbers that remain of the current block: at byte 8 of a CPU generator's state."""
    return int(state[8:12].view(torch.int32))


def draws_between(before, after):
    """32-bit numbers that PyTorch's CPU generator gave between two states; 0 if none, or too many to count."""
    if torch.equal(before, after):
        return 0
    if torch.equal(before[24:5016], after[24:5016]):
        return max(_left(before) - _left(after), 0)
    one = torch.Generator()
    one.set_state(before)
    for blocks in range(1, _MOST_BLOCKS + 1):
        torch.empty(_WORDS, dtype=torch.int32).random_(generator=one)
        now = one.get_state()
        if torch.equal(now[24:5016], after[24:5016]):
            return max(_WORDS * blocks + _left(now) - _left(after), 0)
    return 0


def _python_bytes():
    version, words, gauss = random.getstate()
    return struct.pack(f"<{len(words)}Q", *words) + repr((version, gauss)).encode()


def states(xxh3):
    """Hashes of the states, by the stream's name; and the CPU generator's state itself."""
    cpu = torch.get_rng_state()
    found = {"process/torch": xxh3(raw(cpu)), "process/python": xxh3(_python_bytes())}
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        name, words, *rest = numpy.random.get_state(legacy=True)
        found["process/numpy"] = xxh3(words.tobytes() + repr(rest).encode())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        found["device 0/torch"] = xxh3(raw(torch.cuda.get_rng_state(device)))
    return found, cpu


def used(before, after):
    """Of generators that gave numbers between two of `states`: name, hash before, count of numbers (0: not counted).

    A generator that nobody asks makes no difference, whatever its state: Python's has another one in each process.
    """
    for stream, hash_ in before[0].items():
        if after[0].get(stream, hash_) != hash_:
            yield stream, hash_, draws_between(before[1], after[1]) if stream == "process/torch" else 0
