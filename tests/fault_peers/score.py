"""Gives programs of the labelled suite (docs/faults.md) to what PyTorch brings: plain time-outs, TORCH_DISTRIBUTED_DEBUG=DETAIL
and the flight recorder's analyser. Three Gloo ranks, forked from one process that has imported torch.

    python tests/fault_peers/score.py [KIND ...]      # prints a Markdown table

A kind is noticed if a rank that lives has an error within the wait; it is named if the words of some rank, or the analyser's,
hold the culprit's number as a rank and the operation that is wrong. No word: it was killed after the wait.
"""

import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

WORLD, STEPS, STEP, CULPRIT = 3, 4, 2, 1
TIMEOUT_S, WAIT_S = 2.0, 8.0

# kind: the words of the operation that a good report would hold
KINDS = {
    "kill": "", "exit_early": "", "exception": "decode", "stop": "", "endless_loop": "", "loader_stalled": "",
    "slow": "", "wrong_op": "all_?gather", "wrong_reduction": "max", "wrong_size": r"\b8\b|\[4, 2\]|4, 2", "wrong_shape": r"3, 4",
    "wrong_type": "double|float64", "wrong_order": "6|3, 2", "missing_call": "", "extra_call": "barrier",
    "wrong_root": "root", "no_gradient_sync": "", "fewer_steps": "", "nan": "nan", "flip_weight": "weight",
}


def step_of(kind, rank, step, weights):
    acts = rank == CULPRIT and step == STEP
    if acts and kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if acts and kind == "exit_early":
        os._exit(0)
    if acts and kind == "exception":
        raise RuntimeError("cannot decode sample 17")
    if acts and kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if acts and kind == "endless_loop":
        while True:
            pass
    if acts and kind == "loader_stalled":
        time.sleep(3600)
    if acts and kind == "slow":
        until = time.monotonic() + 2 * TIMEOUT_S
        while time.monotonic() < until:
            pass
    target = torch.zeros(2)
    dist.broadcast(target, 1 if acts and kind == "wrong_root" else 0)
    gradients = [torch.ones(4, 3), torch.ones(3), torch.ones(3, 2)]
    if acts and kind == "nan":
        gradients[0].view(-1)[5] = float("nan")
    if not (acts and kind == "no_gradient_sync"):
        order = [2, 1, 0] if acts and kind == "wrong_order" else [0, 1, 2]
        for index in order:
            one = gradients[index]
            if acts and index == 0 and kind == "missing_call":
                continue
            if acts and index == 0 and kind == "wrong_op":
                dist.all_gather([torch.empty_like(one) for _ in range(WORLD)], one)
            elif acts and index == 0 and kind == "wrong_reduction":
                dist.all_reduce(one, op=dist.ReduceOp.MAX)
            elif acts and index == 0 and kind == "wrong_size":
                dist.all_reduce(one[:, :2].contiguous())
            elif acts and index == 0 and kind == "wrong_shape":
                dist.all_reduce(one.t().contiguous())
            elif acts and index == 0 and kind == "wrong_type":
                dist.all_reduce(one.double())
            else:
                dist.all_reduce(one)
    if acts and kind == "extra_call":
        dist.barrier()
    for weight, gradient in zip(weights, gradients):
        weight.sub_(0.01 * gradient)
    if acts and kind == "flip_weight":
        weights[0].view(-1)[7] += 2.0**-12
    dist.all_gather([torch.empty(2) for _ in range(WORLD)], torch.ones(2))


def be_rank(kind, rank, folder):
    code = 0
    try:
        store = dist.FileStore(folder + "/store", WORLD)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD,
                                timeout=datetime.timedelta(seconds=TIMEOUT_S))
        weights = [torch.ones(4, 3), torch.ones(3), torch.ones(3, 2)]
        for step in range(STEPS - (1 if kind == "fewer_steps" and rank == CULPRIT else 0)):
            step_of(kind, rank, step, weights)
        dist.barrier()
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


def play(kind, detail):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL" if detail else "OFF"
        dist.set_debug_level_from_env()
        began, pids = time.monotonic(), []
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                os.dup2(null, 2)
                be_rank(kind, rank, folder)
            pids.append(pid)
        left = set(pids)
        while left and time.monotonic() < began + WAIT_S:
            for pid in list(left):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    left.discard(pid)
            time.sleep(0.01)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        errors = {}
        for rank in range(WORLD):
            path = f"{folder}/error-{rank}"
            if os.path.exists(path):
                at, _, text = open(path).read().partition("\n")
                errors[rank] = (float(at) - began, text)
        analysis = ""
        if not detail and os.path.isdir(folder + "/fr"):
            done = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder + "/fr",
                                   "-p", "rank_", "--allow-incomplete-ranks"], capture_output=True, text=True)
            analysis = done.stdout + done.stderr
        return errors, analysis


def names(text, kind):
    culprit = re.search(rf"[Rr]anks?\s*:?\s*\[?{CULPRIT}\b|missing ranks: {{{CULPRIT}}}|[Cc]ulprit rank {CULPRIT}\b", text) is not None
    return culprit, culprit and bool(re.search(KINDS[kind], text, re.IGNORECASE))


def told(errors, kind):
    """What the words of all ranks but the culprit's own are worth, and of an exception the culprit's own too."""
    heard = {r: e for r, e in errors.items() if r != CULPRIT or kind == "exception"}
    if not heard:
        return "not noticed"
    after = min(at for at, _ in heard.values())
    rank, operation = map(any, zip(*(names(text, kind) for _, text in heard.values())))
    return f"{'named' if operation else 'rank named' if rank else 'an error'}, {after:.1f} s"


def main():
    os.environ["TORCH_FR_BUFFER_SIZE"] = "200"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    print("| kind | time-out alone | DETAIL | flight-record analyser |\n|---|---|---|---|")
    for kind in sys.argv[1:] or KINDS:
        errors, analysis = play(kind, detail=False)
        plain = told(errors, kind)
        detail = told(play(kind, detail=True)[0], kind)
        rank, operation = names(analysis, kind)
        fr = "no record" if not analysis else "crashed" if "Traceback" in analysis else \
            "named" if operation else "rank named" if rank else "nothing"
        print(f"| {kind} | {plain} | {detail} | {fr} |", flush=True)


if __name__ == "__main__":
    main()
