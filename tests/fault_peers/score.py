"""Gives programs of the labelled suite (docs/faults.md) to what PyTorch brings: plain time-outs, TORCH_DISTRIBUTED_DEBUG=DETAIL
and the flight recorder's analyser (torchfrtrace). Three Gloo ranks, forked from one process that has imported torch.

    python tests/fault_peers/score.py [KIND ...]              # prints a Markdown table
    python tests/fault_peers/score.py --write docs/faults.md  # all kinds, and puts their sum where the page has it
    python tests/fault_peers/score.py --no-analyser KIND ...  # it takes seconds a program; its cells say "not asked"

Each kind acts at the suite's three places: rank 0 at the first step, rank 1 at the third, rank 2 at the last. It is noticed if a
rank that lives has an error within the wait; it is named if the words of some rank that lives, or the analyser's, hold the
culprit's number as a rank and the operation that is wrong. No word: it was killed after the wait.
"""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter

import torch
import torch.distributed as dist

from programs import Program

WORLD, STEPS = 3, 5
PLACES = [(0, 0), (1, 2), (2, 4)]
TIMEOUT_S, WAIT_S, ANALYSIS_S = 2.0, 8.0, 90.0
NO_END = "no end"  # of the analyser
BEGIN, END = "<!-- peers: by tests/fault_peers/score.py -->", "<!-- end of peers -->"

# kind: the words of the operation that a good report would hold; in the order of the suite's table
KINDS = {
    "kill": "", "kill_in_collective": "", "exit_early": "", "exception": "decode", "out_of_memory": "memory", "crash": "",
    "preempted": "", "killed_in_recovery": "", "stop": "", "continued_late": "", "slow": "", "endless_loop": "",
    "loader_stalled": "", "slow_disk": "", "slow_evaluation": "", "blocked_in_teardown": "", "blocked_in_store": "key",
    "deadlock": "barrier", "wrong_op": "all_?gather", "wrong_reduction": "max", "wrong_size": r"\b8\b|\[4, 2\]|4, 2",
    "wrong_shape": r"3, 4", "wrong_type": "double|float64", "wrong_order": "6|3, 2", "missing_call": "", "extra_call": "barrier",
    "wrong_root": "root", "no_gradient_sync": "", "fewer_steps": "", "step_ahead": "step", "barrier_removed": "file",
    "port_in_use": "EADDRINUSE|in use", "half_open": "port|store|connect", "store_dead": "port|store|connect", "wrong_world": "world",
    "duplicate_rank": "twice|duplicate", "rank_missing": "", "other_threads": "thread", "other_library": "version",
    "other_config": "config", "clock_skew": "clock", "nan": "nan", "infinity": "inf", "flip_weight": "weight",
    "flip_moment": "moment", "flip_random_state": "random", "flip_sampler": "sampler", "flip_payload": "reduced",
    "flip_gradient": "gradient", "stale_state": "weight", "row_dropped": "row", "row_doubled": "row", "rows_reordered": "row",
    "disk_full": "No space", "file_cut": "file|EOF|cut",
}
# The culprit itself says it, and lives.
OWN_WORDS = {"exception", "out_of_memory", "port_in_use", "half_open", "store_dead", "disk_full"}


def be_rank(kind, rank, place, folder, held_port):
    code = 0
    try:
        program = Program(kind, rank, place, folder, WORLD, STEPS, TIMEOUT_S, held_port)
        program.meet()
        program.train()
        with open(f"{folder}/finished-{rank}", "w") as file:
            file.write(str(time.monotonic()))
    except BaseException as error:  # what a rank says is what is scored
        with open(f"{folder}/error-{rank}", "w") as file:
            file.write(f"{time.monotonic()}\n{error}")
        code = 1
    try:
        dump = torch._C._distributed_c10d._dump_fr_trace(True, False, False)
        os.makedirs(folder + "/fr", exist_ok=True)
        with open(f"{folder}/fr/rank_{rank}", "wb") as file:
            file.write(dump)
    except Exception:
        pass
    os._exit(code)


def wait_for(pids, kind, culprit, folder):
    """Ends with all ranks gone; those that are left after the wait are killed."""
    until, left, stopped_at = time.monotonic() + WAIT_S, set(pids), None
    while left and time.monotonic() < until:
        for pid in list(left):
            if os.waitpid(pid, os.WNOHANG)[0]:
                left.discard(pid)
        if kind == "continued_late" and os.path.exists(folder + "/acted"):
            stopped_at = stopped_at or time.monotonic()
            if time.monotonic() > stopped_at + 2 * TIMEOUT_S:
                os.kill(pids[culprit], signal.SIGCONT) if pids[culprit] in left else None
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def play(kind, place, detail, analyses=True):
    """Errors by rank, (seconds after the fault acted, words), and what the analyser says."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as held:
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL" if detail else "OFF"
        dist.set_debug_level_from_env()
        held.bind(("127.0.0.1", 0))
        if kind != "store_dead":
            held.listen(16)
        pids = []
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
                be_rank(kind, rank, place, folder, held.getsockname()[1])
            pids.append(pid)
        wait_for(pids, kind, place[0], folder)
        acted = float(open(folder + "/acted").read()) if os.path.exists(folder + "/acted") else None
        errors = {}
        for rank in range(WORLD):
            path = f"{folder}/error-{rank}"
            if os.path.exists(path):
                at, _, text = open(path).read().partition("\n")
                errors[rank] = (float(at) - (acted or float(at)), text)
        if acted is None:
            raise SystemExit(f"{kind} at {place}: the fault never acted: {errors}")
        analysis = ""
        if not detail and analyses and os.path.isdir(folder + "/fr"):
            try:
                done = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder + "/fr",
                                       "-p", "rank_", "--allow-incomplete-ranks"], capture_output=True, text=True, timeout=ANALYSIS_S)
                analysis = done.stdout + done.stderr
            except subprocess.TimeoutExpired:
                analysis = NO_END
        return errors, analysis


def names(text, kind, culprit):
    """Does the text name the rank, and the operation too?"""
    rank = re.search(rf"[Rr]anks?\s*:?\s*\[?{culprit}\b|missing ranks: {{{culprit}}}|[Cc]ulprit rank {culprit}\b", text) is not None
    return rank, rank and bool(re.search(KINDS[kind], text, re.IGNORECASE))


def told(errors, kind, culprit):
    """What the words of the other ranks are worth, or the culprit's own where it is the one who notices."""
    heard = {r: e for r, e in errors.items() if r != culprit or kind in OWN_WORDS}
    if not heard:
        return "not noticed", None
    rank, operation = map(any, zip(*(names(text, kind, culprit) for _, text in heard.values())))
    if culprit in heard and kind in OWN_WORDS and re.search(KINDS[kind], heard[culprit][1], re.IGNORECASE):
        rank = operation = True
    return "named" if operation else "rank named" if rank else "an error", min(at for at, _ in heard.values())


def analysed(analysis, kind, culprit):
    rank, operation = names(analysis, kind, culprit)
    if not analysis or analysis == NO_END:
        return analysis or "no record"
    return "crashed" if "Traceback" in analysis else "named" if operation else "rank named" if rank else "nothing"


def cell(outcomes):
    """Three outcomes with times: "named 2, an error 1; 2.4 s (2.1 to 2.6)"."""
    counts = Counter(what for what, _ in outcomes)
    text = ", ".join(f"{what} {count}" if len(counts) > 1 else f"{what}" for what, count in counts.most_common())
    times = sorted(at for _, at in outcomes if at is not None)
    return text if not times else f"{text}; {times[len(times) // 2]:.1f} s (≤ {times[-1]:.1f})"


def row_of(kind, analyses):
    plain, detail, records = [], [], []
    for place in PLACES:
        errors, analysis = play(kind, place, False, analyses)
        plain.append(told(errors, kind, place[0]))
        records.append((analysed(analysis, kind, place[0]) if analyses else "not asked", None))
        detail.append(told(play(kind, place, detail=True)[0], kind, place[0]))
    return plain, detail, records


def totals(rows, which):
    counts = Counter(what for row in rows for what, _ in row[which])
    return ", ".join(f"{what} {count}" for what, count in counts.most_common())


def main():
    os.environ["TORCH_FR_BUFFER_SIZE"] = "200"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    words = [word for word in sys.argv[1:] if word != "--no-analyser"]
    analyses = "--no-analyser" not in sys.argv
    page = words[1] if words[:1] == ["--write"] else None
    kinds = list(KINDS) if page or not words else words
    lines = [f"LibTorch {torch.__version__}, {len(kinds)} kinds at {len(PLACES)} places; time-out {TIMEOUT_S:g} s.", "",
             "| kind | time-out alone | `TORCH_DISTRIBUTED_DEBUG=DETAIL` | flight-record analyser |", "|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    rows = []
    for kind in kinds:
        rows.append(row_of(kind, analyses))
        lines.append(f"| `{kind}` | " + " | ".join(cell(outcomes) for outcomes in rows[-1]) + " |")
        print(lines[-1], flush=True)
    lines.append("| **all** | " + " | ".join(totals(rows, which) for which in range(3)) + " |")
    print(lines[-1])
    if page:
        text = open(page).read()
        head, rest = text.split(BEGIN + "\n", 1)
        with open(page, "w") as file:
            file.write(head + BEGIN + "\n" + "\n".join(lines[:4] + lines[-1:]) + "\n" + END + "\n" + rest.split(END + "\n", 1)[1])


if __name__ == "__main__":
    main()
