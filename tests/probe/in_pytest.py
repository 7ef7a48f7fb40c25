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
import os, signal, sys, time
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

@pytest.fixture
def table(train, tmp_path):
    assert train.rank != 1 or os.environ.get("LOCKSTEP_TEST") != "fixture"
    return [train.rank]

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

@pytest.mark.parametrize("word", ["nothing", "raises", "exits", "killed", "skips", "sleeps", "spins", "order", "child"])
@pytest.mark.ranks(2, compare=False, timeout=8)
def test_plain(train, word):
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
    "test_plain[raises]": ["on 2 ranks", "rank 1 of 2 ended with status 1:", "ValueError: no such token", "rank 0 of 2 ended with status 1:"],
    "test_plain[exits]": ["rank 1 of 2 ended with status 4"],
    "test_plain[killed]": ["rank 1 of 2 was ended by signal 9"],
    "test_plain[skips]": ["rank 1 of 2 skipped the test: Skipped: not here"],
    "test_plain[sleeps]": ["not ended within 8 s", r"rank 1, innermost frame first:\n.*in fails\n"],
    "test_plain[spins]": ["not ended within 8 s", r"rank 1, innermost frame first:\n.*in fails\n"],
    "test_plain[order]": [r"not ended within 8 s[^$]*in fails\n|rank \d of 2 (ended with status|was ended by signal)"],
    "test_shares": ["12 rows cannot be shared out alike to 5 ranks"],
    "test_words": [r"takes numbers of ranks, and rows, .*; found '2', stepz=3"],
    "test_against_one": ["1 against 2 ranks", "loss-over-world"],
}
GOOD = ["test_right PASSED", "test_plain[nothing] PASSED", "test_plain[child] PASSED", "test_skipped SKIPPED", "test_agrees PASSED", "test_function PASSED"]


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
    need(f"{len(SAYS)} failed, {len(GOOD) - 1} passed, 1 skipped" in said, said[-300:])
    return f"{len(SAYS)} kinds of failures"


CASES = [Case("in pytest: kinds of tests", kinds)]
