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
import os
import platform
import signal
import struct
import sys

from lockstep_probe import ownership

SLOT_BYTES = 128
CHANGES, OPERATION_BYTES = 8, 48
open_file = open  # `open` below is another
OWN_STACKS = 7  # after SIGRTMIN: the signal that asks a rank for its stacks


class Heartbeat:
    """One rank's slot in the file; without a file every call returns at once. Nothing is mapped: a file that somebody cuts short ends nobody."""

    def __init__(self, file=None, rank=0, folder=None):
        self._file, self._rank, self._folder = file, rank, folder
        self._changes, self._step = 0, -1
        self._pid, self._process = os.getpid(), _process()
        self._inode = os.fstat(file.fileno()) if file else None

    def step(self, step, doing):
        """`step` steps are finished, and the rank is about to do `doing`."""
        # A forked child (a data loader's worker) is not the rank.
        if self._file is None or os.getpid() != self._pid:
            return
        self._step = step
        text = doing.encode(errors="replace")[: OPERATION_BYTES - 1]
        # `changes` is odd while a report is written.
        self._changes += 2
        self._put(0, struct.pack("<qQ48s3QQ3QQ", step, self._changes - 1, text, 0, 0, 0, 0, *self._process, 0))
        self._put(CHANGES, struct.pack("<Q", self._changes))

    def close(self):
        """Training is over: what comes is the end of the process."""
        self.step(self._step, "teardown")

    def failed(self, error):
        """Leaves the exception that ends the rank for lockstep to read."""
        if self._folder is None or os.getpid() != self._pid or isinstance(error, KeyboardInterrupt):
            return
        try:
            ownership.write(os.path.join(self._folder, f"rank-{self._rank}.error"), f"{type(error).__name__}: {error}".replace("\n", " ") + "\n")
        except OSError:
            pass

    def _put(self, offset, data):
        try:
            # A trainer that closes all files may have another behind this number.
            if os.path.samestat(os.fstat(self._file.fileno()), self._inode):
                os.pwrite(self._file.fileno(), data, self._rank * SLOT_BYTES + offset)
        except OSError:
            pass  # a full disk: what cannot be said is left out


def _process():
    """This process's number, its PID namespace (its inode, xor the first 64 bits of the boot's number) and when it started; 0: unknown."""
    boot, space = ownership.read("/proc/sys/kernel/random/boot_id"), ownership.namespace()
    known = int(boot.replace("-", "")[:16], 16) ^ int(space[len("pid:[") : -1]) if boot and space else 0
    return os.getpid(), known, ownership.started("self")  # whose number /proc may know otherwise


def _say_hello(folder, rank, world_size):
    """Who the rank is, for lockstep to compare with the others before they train."""
    hello = {
        "rank": rank, "world_size": world_size, "pid": os.getpid(), "host": platform.node(),
        "python": platform.python_version(), "executable": sys.executable,
        **{key: str(getattr(sys.modules.get(name), "__version__", "")) for key, name in (("torch", "torch"), ("probe", "lockstep_probe"))},
        "env": {name: os.environ.get(name, "") for name in os.environ.get("LOCKSTEP_ENV", "").split()},
    }  # fmt: skip
    ownership.write(os.path.join(folder, f"rank-{rank}.hello.json"), json.dumps(hello))


def _give_stacks(folder, rank):
    """On a signal every thread's Python stack is written, also while the interpreter is held in C."""
    file = open_file(os.path.join(folder, f"python-stacks-{rank}.txt"), "a")
    faulthandler.register(signal.SIGRTMIN + OWN_STACKS, file=file, all_threads=True)


def open(path, rank, world_size):
    """The slot of `rank` in the heartbeat file that LOCKSTEP_HEARTBEAT names; an idle object where there is none."""
    folder = os.path.dirname(path) if path else ""
    try:
        _say_hello(folder, rank, world_size)
        file = open_file(path, "r+b", buffering=0)
        if not 0 <= rank < os.fstat(file.fileno()).st_size // SLOT_BYTES:
            return Heartbeat()
        beat = Heartbeat(file, rank, folder)
        beat.step(-1, "load")
        _give_stacks(folder, rank)
        ownership.on_failure(beat.failed)
        return beat
    except (OSError, ValueError, AttributeError):
        return Heartbeat()
