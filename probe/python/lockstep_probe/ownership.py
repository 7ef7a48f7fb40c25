"""Whose recording a folder holds, what else was trained, and how the run ended; without PyTorch.

The trace of a rank has one owner: a process, known by its number, start and PID namespace. What another process or another optimizer trains
is not recorded, and said in the owner's rank-R.probe.json under "unrecorded"; an exception that ends the run under "ended".
"""

import atexit
import contextlib
import json
import os
import platform
import re
import sys
import time
import weakref

_mine = set()  # traces that this process has opened
_at_end = {}  # what runs at the end of this process, by itself
_OF_OTHERS = re.compile(r"gloo|nccl|connection (closed|reset|refused)|broken pipe|socket|store|timed? ?out", re.IGNORECASE)


class Taken(Exception):
    """The trace belongs to somebody else; says to whom."""


def say(text):
    """One message on stderr, with the rank."""
    rank = os.environ.get("RANK", "")
    sys.stderr.write(f"lockstep_probe{f' (rank {rank})' if rank else ''}: {text}\n")
    sys.stderr.flush()


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write(path, text):
    """In place of what is there, whole or not at all. Raises OSError."""
    with open(f"{path}.{os.getpid()}.new", "w") as file:
        file.write(text)
    os.replace(file.name, path)


def started(pid):
    """When a process started, in the kernel's ticks; 0: there is none."""
    words = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(words[19]) if len(words) > 19 else 0


def namespace():
    """Of the numbers of processes, such as pid:[4026531836]; empty: unknown."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def process():
    """This one, as no other process of any host is called."""
    return {"pid": os.getpid(), "started": started(os.getpid()), "host": f"{platform.node()} {namespace()}".strip()}


def attempt():
    """How often torchrun has started the ranks again."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdigit() else 0


def program():
    return os.path.basename(sys.argv[0] if getattr(sys, "argv", None) and sys.argv[0] else "python")


def path_of(out, rank, what):
    return os.path.join(out, f"rank-{rank}.{what}")


def facts_of(out, rank):
    try:
        found = json.loads(read(path_of(out, rank, "probe.json")))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# A trace and its owner.


def was_opened_here(out):
    """Has this process opened a trace in the folder?"""
    return any(os.path.dirname(path) == os.path.abspath(out) and pid == os.getpid() and os.path.exists(path) for path, pid in _mine)


def claim(out, rank):
    """Makes the rank's trace this process's own. Returns what is to be said; raises Taken, OSError."""
    path = os.path.abspath(path_of(out, rank, "trace"))
    os.makedirs(out, exist_ok=True)
    said = ""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        said = _replaced(out, rank, path)
    _mine.add((path, os.getpid()))
    return said


def _replaced(out, rank, path):
    """Of a trace that is there: may it be replaced? One of an earlier run alone. Raises Taken."""
    facts = facts_of(out, rank)
    owner = facts.get("owner") or {}
    who = f"process {owner.get('pid', 'unknown')}" + (f" ({facts['program']})" if facts.get("program") else "")
    if (path, os.getpid()) in _mine:
        raise Taken(f"{path} holds what this process has recorded before")
    # `lockstep` has emptied this folder: whoever has written there since then belongs to the same job.
    same_job = os.path.abspath(os.environ.get("LOCKSTEP_EMPTIED") or "/") == os.path.abspath(out)
    is_here = owner.get("host") == process()["host"]
    lives = is_here and started(owner.get("pid")) == owner.get("started")
    if attempt() > facts.get("attempt", 0) and not lives:
        from lockstep_probe import trace_file

        steps = 0
        with contextlib.suppress(ValueError):  # it has not even begun
            steps = sum(kind == trace_file.STEP for kind, _ in trace_file.frames(path))
        give_back(out, rank)
        # The state before the first step is a step of its own.
        unrecorded.add((out, rank), steps=max(steps - 1, 0), why="an attempt before torchrun started the ranks again")
        return f"{path}: replaces the trace of {who}, which torchrun has started again"
    if same_job or lives or (owner and not is_here and not facts.get("done")):
        raise Taken(f"{path} holds the training of {who}")
    give_back(out, rank)
    return f"{path}: replaces the trace of an earlier run, of {who}"


def give_back(out, rank):
    """What was recorded so far is dropped."""
    path = os.path.abspath(path_of(out, rank, "trace"))
    _mine.discard((path, os.getpid()))
    for each in (path, path_of(out, rank, "probe.json")):
        with contextlib.suppress(OSError):
            os.unlink(each)


@contextlib.contextmanager
def _locked(out, rank):
    """Against other processes that add what they have trained."""
    file = None
    try:
        import fcntl

        file = os.open(path_of(out, rank, "trace"), os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass  # a file system without locks
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def write_facts(out, rank, facts, unrecorded=None):
    """Replaces rank-R.probe.json. `facts` None: what it has remains. What others have said under "unrecorded" remains. Raises OSError."""
    with _locked(out, rank):
        before = facts_of(out, rank)
        facts = before if facts is None else facts
        own = process()
        entries = [each for each in before.get("unrecorded", []) if isinstance(each, dict)]
        if unrecorded is not None:
            entries = [each for each in entries if each.get("by") != own] + [{**unrecorded, "by": own}]
        write(path_of(out, rank, "probe.json"), json.dumps({**facts, "unrecorded": entries}, indent=1))


# What is trained beside it.


class Unrecorded:
    """Updates of this process that no trace holds. Said after 1, 2, 4, 8, … of them, since a process may end without a word; and at its end."""

    def __init__(self):
        self._pid = None

    def add(self, where, optimizer=None, steps=1, why=""):
        """`where`: folder and rank. `why`: what it is, where it is no other optimizer."""
        if self._pid != os.getpid():
            self._pid, self._steps, self._kinds, self._seen, self._number, self._why = os.getpid(), 0, set(), weakref.WeakSet(), 0, ""
            at_end(self.say)
        self._where, self._why = where, self._why or why
        if optimizer is not None and optimizer not in self._seen:
            self._seen.add(optimizer)
            self._kinds.add(type(optimizer).__name__)
            self._number += 1
        before, self._steps = self._steps, self._steps + steps
        if before.bit_length() != self._steps.bit_length():
            self.say(done=False)

    def _what(self):
        kinds = ", ".join(sorted(self._kinds))
        owner = facts_of(*self._where).get("owner")
        if owner is not None and owner != process():
            return f"another process ({program()}{', ' + kinds if kinds else ''})"
        return self._why or (f"a second optimizer ({kinds})" if self._number == 1 else f"{self._number} other optimizers ({kinds})")

    def say(self, done=True):
        if self._pid != os.getpid() or not self._steps:
            return
        entry = {"what": self._what(), "steps": self._steps, "done": done}
        with contextlib.suppress(OSError):
            write_facts(*self._where, None, entry)


unrecorded = Unrecorded()


# Ends.


def at_end(call):
    """Runs at the end of this process, also of one that multiprocessing has started, which knows no atexit."""
    atexit.register(call)
    util = sys.modules.get("multiprocessing.util")
    context = sys.modules.get("multiprocessing.process")
    if util is not None and context is not None and context.parent_process() is not None:
        _at_end[call] = util.Finalize(None, call, exitpriority=100)


def not_at_end(call):
    atexit.unregister(call)
    last = _at_end.pop(call, None)
    if last is not None:
        last.cancel()


def on_failure(call):
    """`call` gets an exception that nobody catches, before anything else is done with it."""
    before = sys.excepthook

    def failed(kind, error, trace):
        call(error)
        before(kind, error, trace)

    sys.excepthook = failed


def in_flight():
    """The exception that a process of multiprocessing ends with, at its end; behind a sys.exit() the one that it was called for."""
    error = sys.exc_info()[1]
    return error.__context__ or error if isinstance(error, SystemExit) else error


def end_of(error, status=None):
    """What is said of an exception, or of the status with which the program left; nothing where it left well."""
    if isinstance(error, SystemExit):
        error, status = None, error.code
    if error is None and status in (None, 0):
        return None
    what = f"left with status {status if isinstance(status, int) else 1}"
    end = {"error": what, "of_others": False, "where": "", "at": time.time()}
    if error is not None:
        first = next(iter(str(error).strip().splitlines()), "")
        end["error"] = f"{type(error).__name__}: {first}"[:400] if first else type(error).__name__
        named = type(error).__name__ in ("DistBackendError", "DistNetworkError", "DistStoreError", "KeyboardInterrupt")
        end["of_others"] = named or bool(isinstance(error, (RuntimeError, OSError)) and _OF_OTHERS.search(str(error)))
        end["where"] = _place(error.__traceback__)
    return end


def _place(trace):
    """The innermost line of the program's own."""
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not place or not re.search(r"[/\\](site-packages|dist-packages|lib[/\\]python3[^/\\]*|lockstep_probe)[/\\]|^<", code.co_filename):
            place = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def write_end_alone(out, rank, error):
    """Of a rank that ends before its first step: nothing else is known of it."""
    with contextlib.suppress(OSError):
        end = end_of(error)
        if end is not None and not os.path.exists(path_of(out, rank, "probe.json")):
            os.makedirs(out, exist_ok=True)
            write_facts(out, rank, {"format": 1, "steps": 0, "done": False, "owner": process(), "program": program(), "ended": {**end, "after": 0}})
