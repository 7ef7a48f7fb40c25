"""The plugin of pytest: right bodies pass, wrong ones fail with cause, place and fix; whatever a rank does the test ends in time and says which
rank it was, and no process is left."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

from case import Case, need

PROBE = str(pathlib.Path(__file__).resolve().parents[2] / "probe" / "python")
TESTS = '''
import os, re, signal, sys, threading, time
import pytest, torch, torch.nn.functional as F, torch.distributed as dist
from lockstep_probe import agree, assert_same

DATA = torch.randn(96, 6, generator=torch.Generator().manual_seed(1)), torch.randint(0, 3, (96,), generator=torch.Generator().manual_seed(2))

def loop(train, reduction="mean", at=None):
    model = torch.nn.Linear(6, 3)
    made, optimizer = train.wrap(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (ids, x, y) in enumerate(train.batches(DATA, rows=12)):
        if at and train.rank == 1 and step == 1:
            at()
        F.cross_entropy(made(x), y, reduction=reduction).backward()
        optimizer.step()
        optimizer.zero_grad()

def fails(word):
    if word == "raises":
        raise ValueError("no such token")
    if word == "exits":
        os._exit(4)
    if word == "leaves":
        sys.exit(0)
    if word == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "skips":
        pytest.skip("not here")
    if word == "sleeps":
        time.sleep(600)
    if word == "spins":
        while True:
            pass
    if word == "order":
        dist.broadcast(torch.zeros(3), 0)
    if word == "child":
        os.fork() or time.sleep(600)
    if word == "exits well":
        os._exit(0)
    if word in ("SIGSEGV", "SIGTERM", "SIGABRT"):
        os.kill(os.getpid(), getattr(signal, word))
    if word == "memory":
        torch.empty(1 << 50)
    if word == "shape":
        dist.all_reduce(torch.zeros(7, 7))
    if word == "barrier":
        dist.barrier()
    if word == "waits":
        dist.recv(torch.zeros(1), 0)
    if word == "slow":
        time.sleep(7)
    if word == "keeps the GIL":
        re.match("(a+)+$", "a" * 60 + "b")
    if word == "blocks signals":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(600)
    if word == "thread":
        threading.Thread(target=time.sleep, args=(600,)).start()
    if word == "worker":
        list(torch.utils.data.DataLoader([1, None], num_workers=1, collate_fn=lambda rows: rows[0] + 1))
    if word == "backward":
        Wrong.apply(torch.ones(2, requires_grad=True)).sum().backward()
    if word == "asserts":
        assert [dist.get_rank()] == [0]
    if word == "flood":
        print(("x" * 99 + "\\n") * 300_000)
        raise ValueError("after much output")
    if word == "unpicklable":
        raise type("Own", (Exception,), {})(lambda: 0, threading.Lock())
    if word == "interrupted":
        raise KeyboardInterrupt
    if word == "recurs":
        fails(word)

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no gradient of this")

@pytest.fixture
def table(train, tmp_path):
    return [train.rank]

@pytest.fixture
def early(train):
    assert train.rank != 1, "no table"

@pytest.fixture
def late(train):
    yield
    assert train.rank != 1, "cannot be closed"

@pytest.mark.ranks(2, compare=False, timeout=20)
def test_setup(early):
    pass

@pytest.mark.ranks(2, compare=False, timeout=20)
def test_teardown(late):
    pass

@pytest.mark.xfail(raises=None, reason="known")
@pytest.mark.ranks(2, compare=False, timeout=20)
def test_known(train):
    assert train.rank != 1

@pytest.mark.xfail(strict=True)
@pytest.mark.ranks(2, compare=False, timeout=20)
def test_strict(train):
    pass

@pytest.mark.ranks(2, compare=False, timeout=20)
def test_expected(train):
    pytest.xfail("not yet")

@pytest.mark.ranks(1, 2, 3, steps=4, rows=12)
def test_right(train, table):
    assert table == [train.rank]
    loop(train)

@pytest.mark.ranks(1, 2, steps=4, rows=12)
def test_sum(train):
    loop(train, "sum")

@pytest.mark.parametrize("word", ["raises", "exits", "killed", "leaves", "skips"])
@pytest.mark.ranks(1, 2, steps=4, rows=12)
def test_rank(train, word):
    loop(train, at=lambda: fails(word))

@pytest.mark.parametrize("word", ["nothing", "raises", "exits", "killed", "skips", "child", "leaves", "exits well",
                                  "SIGSEGV", "SIGTERM", "SIGABRT", "memory", "shape", "worker", "backward", "asserts",
                                  "flood", "unpicklable", "interrupted", "recurs"])
@pytest.mark.ranks(2, compare=False, timeout=20)
def test_ends(train, word):
    plain(train, word)

@pytest.mark.parametrize("word", ["sleeps", "spins", "order", "barrier", "waits", "slow", "keeps the GIL",
                                  "blocks signals", "thread"])
@pytest.mark.ranks(2, compare=False, timeout=6)
def test_hangs(train, word):
    plain(train, word)

@pytest.mark.ranks(2, compare=False, timeout=20)
def test_last(train):
    train.rank == 1 and os._exit(0)

def plain(train, word):
    for step in range(3):
        if train.rank == 1 and step == 1:
            fails(word)
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == train.world_size

@pytest.mark.ranks(3, compare=False, timeout=20)
def test_agrees(train):
    agree("lr", 0.1)
    agree("mask", torch.arange(9))
    for value in (0.1 * (train.rank + 1 if train.rank == 1 else 1), torch.arange(9) + (train.rank == 1), "ab"[train.rank == 1]):
        with pytest.raises(RuntimeError, match="lr is not the same on all ranks: .* on rank 1; .* on ranks 0, 2"):
            agree("lr", value)

@pytest.mark.ranks(1, 2)
def test_skipped(train):
    pytest.skip("nowhere")

@pytest.mark.ranks(1, 5, rows=12)
def test_shares(train):
    loop(train)

@pytest.mark.ranks("2", stepz=3)
def test_words(train):
    loop(train)

@pytest.mark.ranks(2, rows=12, steps=4)
def test_against_one(train):
    loop(train, "sum")

def test_function():
    assert_same(loop, ranks=(1, 2), rows=12, steps=4)
    with pytest.raises(AssertionError, match="loss-over-world"):
        assert_same(lambda rank: loop(rank, "sum"), ranks=(1, 2), rows=12, steps=4)
'''
SAYS = {
    "test_sum": ["1 against 2 ranks", "different from step 0: loss-over-world", "fix "],
    "test_rank[raises]": ["rank 1 of 2 ended with status 1:", "ValueError: no such token"],
    "test_rank[exits]": ["rank 1 of 2 ended with status 4"],
    "test_rank[killed]": ["rank 1 of 2 was ended by signal 9"],
    "test_rank[leaves]": ["rank 1 of 2 ended with status 0"],
    "test_rank[skips]": ["rank 1 of 2 skipped the test: Skipped: not here"],
    "test_ends[raises]": ["on 2 ranks", "rank 1 of 2 ended with status 1:", "ValueError: no such token", "rank 0 of 2 ended with status 1:"],
    "test_ends[exits]": ["rank 1 of 2 ended with status 4"],
    "test_ends[killed]": ["rank 1 of 2 was ended by signal 9"],
    "test_ends[skips]": ["rank 1 of 2 skipped the test: Skipped: not here"],
    "test_ends[leaves]": ["rank 1 of 2 ended with status 1:", "SystemExit: 0"],
    "test_ends[exits well]": ["rank 1 of 2 ended with status 0"],
    **{f"test_ends[{name}]": [rf"rank 1 of 2 was ended by signal \d+ .{name}"] for name in ("SIGSEGV", "SIGTERM", "SIGABRT")},
    "test_ends[memory]": ["rank 1 of 2 ended with status 1:", "can't allocate memory"],
    "test_ends[shape]": [r"rank \d of 2 (ended with status|was ended by signal)"],
    "test_ends[worker]": ["rank 1 of 2 ended with status 1:", "TypeError: Caught TypeError in DataLoader worker process 0"],
    "test_ends[backward]": ["rank 1 of 2 ended with status 1:", "ValueError: no gradient of this"],
    "test_ends[asserts]": ["rank 1 of 2 ended with status 1:", r"assert \[1\] == \[0\]"],
    "test_ends[flood]": ["rank 1 of 2 ended with status 1:", "ValueError: after much output"],
    "test_ends[unpicklable]": ["rank 1 of 2 ended with status 1:", r"Own: \(<function"],
    "test_ends[interrupted]": ["rank 1 of 2 ended with status 130:", "KeyboardInterrupt"],
    "test_ends[recurs]": ["rank 1 of 2 ended with status 1:", "RecursionError"],
    "test_last": ["rank 1 of 2 ended with status 0 before the test's end"],
    "test_setup": ["rank 1 of 2 ended with status 1:", "no table"],
    "test_teardown": ["rank 1 of 2 ended with status 1:", "cannot be closed"],
    "test_strict": [r"\[XPASS\(strict\)\]"],
    **{f"test_hangs[{word}]": ["not ended within 6 s", r"rank 1, innermost frame first:\n(.*\n)*.*in fails\n"]
       for word in ("sleeps", "spins", "waits", "slow", "keeps the GIL", "blocks signals")},
    "test_hangs[order]": [r"not ended within 6 s[^$]*in fails\n|rank \d of 2 (ended with status|was ended by signal)"],
    "test_hangs[barrier]": [r"not ended within 6 s[^$]*in fails\n|rank \d of 2 (ended with status|was ended by signal)"],
    "test_hangs[thread]": ["not ended within 6 s", r"rank 1, innermost frame first:\n"],
    "test_shares": ["12 rows cannot be shared out alike to 5 ranks"],
    "test_words": [r"takes numbers of ranks, and rows, .*; found '2', stepz=3"],
    "test_against_one": ["1 against 2 ranks", "loss-over-world"],
}
GOOD = ["test_right PASSED", "test_ends[nothing] PASSED", "test_ends[child] PASSED", "test_skipped SKIPPED", "test_agrees PASSED", "test_function PASSED",
        "test_known XFAIL (known)", "test_expected XFAIL (not yet)"]  # fmt: skip


def left_behind(mark):
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().decode(errors="replace"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass
    return found


def install(folder):
    """As the wheel is: pytest then rewrites the package's modules, of which `-m` must find some."""
    metadata = folder / "lockstep_probe-0.dist-info"
    metadata.mkdir()
    metadata.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: lockstep-probe\nVersion: 0\n")
    metadata.joinpath("entry_points.txt").write_text("[pytest11]\nlockstep = lockstep_probe.pytest_plugin\n")
    metadata.joinpath("RECORD").write_text("".join(f"lockstep_probe/{path.name},,\n" for path in pathlib.Path(PROBE, "lockstep_probe").glob("*.py")))


def run(bench, *words):
    install(bench.folder)
    bench.folder.joinpath("test_ranks.py").write_text(TESTS)
    mark = f"LOCKSTEP_TEST_FOLDER={bench.folder}"
    variables = {**os.environ, "LOCKSTEP": bench.lockstep, "PYTHONPATH": f"{PROBE}{os.pathsep}{bench.folder}", **dict([mark.split("=", 1)])}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "test_ranks.py", *words]
    said = subprocess.run(command, cwd=bench.folder, env=variables, capture_output=True, text=True, timeout=600).stdout
    need(not left_behind(mark), f"a process is left: {left_behind(mark)}")
    return said


def of_test(said, name):
    begin = re.search(rf"^_+ {re.escape(name)} _+$", said, re.M)
    return re.split(r"^_{3,} .* _{3,}$|^=+ .*=+$", said[begin.end() :], maxsplit=1, flags=re.M)[0] if begin else ""


def kinds(bench):
    if not importlib.util.find_spec("pytest"):
        return "left out: pytest is not installed"
    said = run(bench)
    for good in GOOD:
        need(f"test_ranks.py::{good}" in said, f"{good}: {said[-3000:]}")
    for name, texts in SAYS.items():
        for text in texts:
            found = of_test(said, name)
            need(text in found or re.search(text, found), f"{name} does not say {text!r}: {found or said[-2000:]}")
    need(f"{len(SAYS)} failed, {len(GOOD) - 3} passed, 1 skipped, 2 xfailed" in said, said[-300:])
    return f"{len(SAYS)} kinds of failures"


CASES = [Case("in pytest: kinds of tests", kinds)]
