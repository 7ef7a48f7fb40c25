"""Tells lockstep how far a rank is: the twin of harness/run/heartbeat.h, in plain Python.

    beat = heartbeat.open(os.environ["LOCKSTEP_HEARTBEAT"], rank, world_size)
    beat.step(17, "forward")     # 17 steps are finished; what it does now
    beat.close()                 # training is over

Call `open` once, in the process that trains, and not in the workers of a data loader. What is done decides how long a rank may take
for it: "load", "evaluate", "save" and "teardown" begin such a phase; "all_reduce", "all_gather", "broadcast", "barrier" and
"reduce_gradients" wait for other ranks; anything else is part of a step. Nothing here raises: a trainer must not fail because nobody
watches it.
"""

import faulthandler
import json
import mmap
import os
import platform
import signal
import struct
import sys

SLOT_BYTES = 128
STEP, CHANGES, OPERATION, OPERATION_BYTES, SHOWN, PROCESS = 0, 8, 16, 48, 88, 96
OWN_STACKS = 7  # after SIGRTMIN: the signal that asks a rank for its stacks


class Heartbeat:
    """One rank's slot in the mapped file; without a file every call returns at once."""

    def __init__(self, slots=None, rank=0, folder=None):
        self._slots, self._at, self._rank, self._folder = slots, rank * SLOT_BYTES, rank, folder
        self._changes, self._step, self._doing = 0, -1, ""
        self._pid = os.getpid()

    def step(self, step, doing):
        """`step` steps are finished, and the rank is about to do `doing`."""
        # A forked child (a data loader's worker) is not the rank.
        if self._slots is None or os.getpid() != self._pid:
            return
        self._step, self._doing = step, doing
        text = doing.encode(errors="replace")[: OPERATION_BYTES - 1].ljust(OPERATION_BYTES, b"\0")
        # `changes` is odd while a report is written.
        self._changes += 2
        self._put("<Q", CHANGES, self._changes - 1)
        self._slots[self._at + OPERATION : self._at + OPERATION + OPERATION_BYTES] = text
        self._put("<q", STEP, step)
        self._put("<Q", CHANGES, self._changes)

    def show(self, value):
        """The newest value of the metric that a table of progress shows."""
        if self._slots is not None and os.getpid() == self._pid:
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            self._put("<Q", SHOWN, (bits + 1) & (2**64 - 1))

    def close(self):
        """Training is over: what comes is the end of the process."""
        self.step(self._step, "teardown")

    def failed(self, kind, error):
        """Leaves the exception that ends the rank for lockstep to read."""
        if self._folder is None or os.getpid() != self._pid:
            return
        try:
            _write(os.path.join(self._folder, f"rank-{self._rank}.error"), f"{kind.__name__}: {error}".replace("\n", " ") + "\n")
        except OSError:
            pass

    def _put(self, form, offset, value):
        struct.pack_into(form, self._slots, self._at + offset, value)


def _write(path, text):
    with open_file(path + ".tmp", "w") as file:
        file.write(text)
    os.replace(path + ".tmp", path)


open_file = open


def _torch_version():
    module = sys.modules.get("torch")
    if module is not None:
        return str(getattr(module, "__version__", ""))
    try:
        from importlib.metadata import version

        return version("torch")
    except Exception:  # nothing that is not installed may stop a trainer
        return ""


def _say_hello(folder, rank, world_size):
    """Who the rank is, for lockstep to compare with the others before they train."""
    hello = {
        "rank": rank, "world_size": world_size, "pid": os.getpid(), "host": platform.node(),
        "python": platform.python_version(), "executable": sys.executable, "torch": _torch_version(),
        "probe": str(getattr(sys.modules.get("lockstep_probe"), "__version__", "")),
        "env": {name: os.environ.get(name, "") for name in os.environ.get("LOCKSTEP_ENV", "").split()},
    }  # fmt: skip
    _write(os.path.join(folder, f"rank-{rank}.hello.json"), json.dumps(hello))


def _give_stacks(folder, rank):
    """On a signal every thread's Python stack is written, also while the interpreter is held in C."""
    file = open_file(os.path.join(folder, f"python-stacks-{rank}.txt"), "a")
    faulthandler.register(signal.SIGRTMIN + OWN_STACKS, file=file, all_threads=True)


def _tell_failures(beat):
    before = sys.excepthook

    def hook(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            beat.failed(kind, error)
        before(kind, error, trace)

    sys.excepthook = hook


def open(path, rank, world_size):
    """The slot of `rank` in the heartbeat file that LOCKSTEP_HEARTBEAT names; an idle object where there is none."""
    folder = os.path.dirname(path) if path else ""
    try:
        _say_hello(folder, rank, world_size)
        with open_file(path, "r+b") as file:
            slots = mmap.mmap(file.fileno(), 0)
        if not 0 <= rank < len(slots) // SLOT_BYTES:
            return Heartbeat()
        beat = Heartbeat(slots, rank, folder)
        beat._put("<q", PROCESS, os.getpid())
        beat.step(-1, "load")
        _give_stacks(folder, rank)
        _tell_failures(beat)
        return beat
    except (OSError, ValueError, AttributeError):
        return Heartbeat()
