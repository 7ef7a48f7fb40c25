"""Functions that train, run on several ranks and judged by `lockstep check`: what the pytest mark and `assert_same` do.

The process that holds the functions forks a copy of itself, which forks every rank of every run: what has been imported is
there at once, and nothing is pickled. Ranks meet by a file; on Gloo, or on NCCL where each has a GPU.
"""

import contextlib
import faulthandler
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

bodies = {}  # by name: what a rank does with its Train
current = None  # this rank's Train
_LAST_WORDS = 1.0  # seconds that ranks have to end by themselves when one has failed
_PREFIX = "LOCKSTEP_RANKS_"  # variables of a rank beside those of torchrun
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Train:
    """What a rank knows, and its share of the data."""

    def __init__(self, rank=0, world_size=1, device="cpu"):
        self.rank, self.world_size, self.device = rank, world_size, device

    def batches(self, data, rows=24, epochs=1, shuffle=False):
        """(ids, *columns) of this rank's part of each step: `rows` over all ranks; rows that fill no step are left out.

        data  a map-style data set whose items are tuples, or a tuple of tensors with rows along the first dimension
        ids   int64 tensor, numbers of the rows in `data`
        Raises ValueError if `rows` cannot be shared out alike.
        """
        import torch
        from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

        if rows % self.world_size:
            raise ValueError(f"{rows} rows cannot be shared out alike to {self.world_size} ranks; give batches(rows=...) a multiple of it")
        found = TensorDataset(*data) if isinstance(data, (tuple, list)) and isinstance(data[0], torch.Tensor) else data

        class Numbered(Dataset):
            def __len__(self):
                return len(found) // rows * rows

            def __getitem__(self, index):
                item = found[index]
                return (index, *(item if isinstance(item, (tuple, list)) else (item,)))

        numbered = Numbered()
        sampler = DistributedSampler(numbered, self.world_size, self.rank, shuffle=shuffle, seed=0)
        loader = DataLoader(numbered, batch_size=rows // self.world_size, sampler=sampler)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            yield from loader

    def wrap(self, model):
        """The model in DistributedDataParallel, where there are several ranks."""
        if self.world_size == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)


class Found:
    """How it ended. `text`: what is to be said; `skipped`: why every rank of a run left it out."""

    def __init__(self, good, text, skipped=None):
        self.good, self.text, self.skipped = good, text, skipped


class Forker:
    """A copy of this process, which forks the processes of runs."""

    def __init__(self):
        import torch._dynamo  # noqa: F401  an optimizer's first step imports it
        import torch.nn.parallel  # noqa: F401

        import lockstep_probe.probe  # noqa: F401

        self._folder = tempfile.mkdtemp(prefix="lockstep-")
        self._socket = os.path.join(self._folder, "starter")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._socket)
        listener.listen()
        self._owner, self._pid = os.getpid(), os.fork()
        if not self._pid:
            _serve(listener)
        listener.close()

    def check(self, name, ranks, out, rows=24, steps=8, timeout=30, accept=(), gpu=False, alone=()):
        """`lockstep check` of a body on two numbers of ranks. `alone`: pytest's words, for ranks that cannot be forked."""
        words = [_program(), "check", "--quiet", "--fresh", "--ranks", ",".join(map(str, ranks)), "--rows", str(rows), "--steps", str(steps),
                 "--timeout", str(timeout), "--out", str(out)]  # fmt: skip
        words += [word for code in accept for word in ("--accept", code)]
        environment = {**self._environment(timeout, gpu, alone), "LOCKSTEP_STARTER": self._socket, "NO_COLOR": "1"}
        end = subprocess.run(words + ["--", *_words("{ranks}", name)], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if end.returncode in (0, 1, 5):
            return Found(end.returncode == 0, end.stdout.rstrip())
        run = re.match(r"lockstep: ([\w-]+): ", end.stderr)
        folder = pathlib.Path(out, "runs", run[1] if run else "")
        if end.returncode == 4:
            return Found(False, f"{end.stderr.splitlines()[0]}\n\n{_stacks(folder)}".rstrip())
        return _failed(folder, end.stderr.rstrip())

    def run(self, name, ranks, out, timeout=30, gpu=False, alone=()):
        """A body on that number of ranks, which is good if all of them end well within so many seconds."""
        os.makedirs(out, exist_ok=True)
        log = os.path.join(out, "log")
        asked = {"start": name, "words": _words(ranks, name), "environment": {**self._environment(timeout, gpu, alone), **_THREADS, _PREFIX + "OUT": str(out)},
                 "folder": os.getcwd(), "log": log}  # fmt: skip
        until, ends = time.monotonic() + timeout, None
        with socket.socket(socket.AF_UNIX) as channel, contextlib.suppress(socket.timeout):
            channel.connect(self._socket)
            channel.sendall((json.dumps({"import": ["torch"]}) + "\n" + json.dumps(asked) + "\n").encode())
            channel.settimeout(timeout)
            for line in channel.makefile():
                said = json.loads(line)
                if "cannot" in said:
                    return Found(False, f"no rank can be forked: {said['why']}")
                if "ended" in said:
                    ends = said
                    break
                channel.settimeout(max(0.01, until - time.monotonic()))
        if ends is None:  # the connection's end has ended them
            return Found(False, f"not ended within {timeout} s\n\n{_stacks(out)}")
        if not ends["code"] and len(_by_rank(out, "done")) == ranks and not _by_rank(out, "skipped"):
            return Found(True, "")
        return _failed(pathlib.Path(out), pathlib.Path(log).read_text(errors="replace").rstrip())

    @staticmethod
    def _environment(timeout, gpu, alone):
        hidden = {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
        return {**os.environ, **hidden, _PREFIX + "ALONE": json.dumps(list(alone)), _PREFIX + "EVERY": str(max(1, timeout / 4))}

    def close(self):
        if self._pid and os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGTERM)
                os.waitpid(self._pid, 0)
            self._pid = 0
            shutil.rmtree(self._folder, ignore_errors=True)


def _words(ranks, name):
    return [sys.executable, "-m", "lockstep_probe", str(ranks), name]


def _program():
    found = os.environ.get("LOCKSTEP") or shutil.which("lockstep") or shutil.which("lockstep", path=os.path.dirname(sys.executable))
    if not found:
        raise RuntimeError("there is no program lockstep: pip install lockstep-judge, or name it by LOCKSTEP")
    return found


def _by_rank(folder, end):
    files = (path for path in pathlib.Path(folder).glob(f"rank-*.{end}"))
    return {rank: text for rank, text in sorted((int(path.name.split("-")[1].split(".")[0]), path.read_text()) for path in files)}


def _failed(folder, otherwise):
    """Of a run's folder: its ranks in the order of their ends, with what each said."""
    said, skipped, done, lines = *(_by_rank(folder, each) for each in ("traceback", "skipped", "done")), []
    with contextlib.suppress(OSError, ValueError):
        ends = json.loads((folder / "ends.json").read_text())
        if len(skipped) == ends["ranks"]:
            return Found(False, "", skipped[0])
        for rank, how in ends["ends"]:
            early = how == "ended with status 0" and rank not in done
            how = "skipped the test: " + skipped[rank] if rank in skipped else how + " before the test's end" * early
            lines.append(f"rank {rank} of {ends['ranks']} {how}" + (":\n\n" + said[rank].rstrip() + "\n" if rank in said else ""))
    if not said and not skipped:
        lines += ["", otherwise, *(f"\nlast lines of {path.name}:\n{_last_lines(path)}" for path in sorted(folder.glob("*log")) if path.stat().st_size)]
    return Found(False, "\n".join(lines).strip("\n"))


def _last_lines(path, most=12):
    return "\n".join(path.read_text(errors="replace").splitlines()[-most:])


def _stacks(folder):
    """Where each rank was when it was last looked at."""
    found = {rank: text.rpartition("Timeout (")[2].partition("\n")[2].strip() for rank, text in _by_rank(folder, "stacks").items()}
    own = os.path.dirname(__file__)
    lines = []
    for rank, stack in found.items():
        lines.append(f"rank {rank}, innermost frame first:" if stack else f"rank {rank}: no stack; it is stopped, or has just begun")
        for line in stack.splitlines()[1:]:
            if own in line and "patches.py" not in line:
                break  # what has called the body
            lines += [line] if own not in line else []
    return "\n".join(lines)


def assert_same(train, ranks=(1, 2), rows=24, steps=8, timeout=30, accept=(), gpu=False):
    """Raises AssertionError unless `train`, a function of a `Train`, trains the same on the first number of ranks and on each other.

    rows, steps, timeout, accept  as of `lockstep check`
    gpu                           ranks see the GPUs; else they are hidden from them
    """
    name, out = f"body-{len(bodies)}", tempfile.mkdtemp(prefix="lockstep-ranks-")
    bodies[name] = train
    forker = Forker()
    try:
        for other in ranks[1:]:
            folder = os.path.join(out, f"{ranks[0]}-{other}")
            found = forker.check(name, (ranks[0], other), folder, rows, steps, timeout, accept, gpu)
            if not found.good:
                raise AssertionError(f"{ranks[0]} against {other} ranks\n{found.text}\n\nall of it: {folder}")
    finally:
        forker.close()
        del bodies[name]
    shutil.rmtree(out, ignore_errors=True)


# In the copy.


def _serve(listener):
    """Does not return: each connection is served by a process of its own, as `lockstep check` wants it."""
    status = 1
    try:
        from lockstep_probe import starter

        starter.die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__  # not what a test runner captures by
        # pytest's own knows no code for `-m`.
        sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "AssertionRewritingHook"]
        while True:
            channel, _ = listener.accept()
            if os.fork():
                channel.close()
                continue
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            log = os.open(os.devnull, os.O_WRONLY)
            for number, fd in enumerate((channel.fileno(), channel.fileno(), log)):
                os.dup2(fd, number)
            channel.close()
            starter.main(started=False)
            status = 0
            return
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


# In the processes of a run.


def _folder():
    return pathlib.Path(os.environ.get("LOCKSTEP_TRACE") or os.environ[_PREFIX + "OUT"])


def _kill(pids):
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _launch(ranks, name):
    """Starts the ranks, and ends those that are left when one fails. Returns the status."""
    store, running, ends, status = tempfile.mktemp(prefix="lockstep-store-"), {}, [], 0
    for rank in range(ranks):
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, _PREFIX + "STORE": store}
        words = _words("--rank", name)
        process = subprocess.Popen(words, env={**os.environ, **{key: str(value) for key, value in own.items()}})
        running[process.pid] = rank, process
    until = None
    try:
        while running:
            pid, ended = os.waitpid(-1, os.WNOHANG if until else 0)
            if until and time.monotonic() > until:
                _kill(running)
            if not pid:
                time.sleep(0.02)
            if pid not in running:
                continue
            rank, process = running.pop(pid)
            code = process.returncode = os.waitstatus_to_exitcode(ended)
            by_us = until and time.monotonic() > until
            how = f"was ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
            ends.append((rank, "waited for the others" if by_us else how))
            if code and not status:
                status = 1 if code < 0 else code
                print(f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid})", flush=True)  # as torchrun has it
                until = time.monotonic() + _LAST_WORDS
            (_folder() / "ends.json").write_text(json.dumps({"ranks": ranks, "ends": ends}))
    finally:
        _kill(running)
        with contextlib.suppress(OSError):
            os.unlink(store)
    return status


def _be_rank(name):
    import random

    import torch
    import torch.distributed as dist

    global current
    rank, world_size, folder = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), _folder()
    stacks = open(folder / f"rank-{rank}.stacks", "w")  # noqa: SIM115
    faulthandler.dump_traceback_later(float(os.environ[_PREFIX + "EVERY"]), repeat=True, file=stacks)
    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    current = Train(rank, world_size, torch.device("cuda", rank % gpus) if gpus else torch.device("cpu"))
    store = "file://" + os.environ[_PREFIX + "STORE"]
    dist.init_process_group("nccl" if 0 < world_size <= gpus else "gloo", init_method=store, rank=rank, world_size=world_size)
    alone = json.loads(os.environ[_PREFIX + "ALONE"])
    try:
        if name in bodies:
            bodies[name](current)
        elif alone:
            import pytest

            sys.exit(int(pytest.main(alone)))
        else:
            raise RuntimeError("this process cannot be forked, and a function is in no other: see starter.log; give the ranks a test of pytest")
    except (Exception, KeyboardInterrupt):
        leave(traceback.format_exc())
        raise
    leave("", "done")
    with contextlib.suppress(Exception):  # of ranks that the body took it from already
        dist.destroy_process_group()


def leave(text, kind="traceback"):
    """What a rank has to say for whoever waits for the run; the first word counts."""
    path = _folder() / f"rank-{current.rank}.{kind}"
    if not path.exists():
        path.write_text(text)


def main():
    if sys.argv[1] == "--rank":
        return _be_rank(sys.argv[2])
    return sys.exit(_launch(int(sys.argv[1]), sys.argv[2]))
