"""Real processes for real ranks: forked from a parent that has PyTorch loaded, on Gloo, with a deadline."""

import json
import os
import pathlib
import signal
import tempfile
import time
import traceback

import torch
import torch.distributed as dist


def warm_up():
    """What PyTorch imports at the first model's first step, imported once before ranks are forked."""
    import torch._dynamo  # noqa: F401

    model = torch.nn.Linear(1, 1)
    model(torch.ones(1)).backward()
    torch.optim.AdamW(model.parameters()).step()


def _rank(rank, world, work, folder, environment):
    os.environ.update(environment, GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo"))
    log = os.open(os.path.join(folder, f"{rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(1)
    status = 1
    try:
        if world > 1:
            if "TORCH_DISTRIBUTED_DEBUG" in environment:
                dist.set_debug_level_from_env()
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        answer = work(rank)
        with open(os.path.join(folder, f"{rank}.json"), "w") as file:
            json.dump(answer, file)
        status = 0
        if world > 1:
            dist.barrier()
    except BaseException:  # noqa: BLE001 - the boundary of the process: all that it says stands in its log
        traceback.print_exc()
    os._exit(status)


class Late(Exception):
    """Ranks that ran past their deadline: a busy machine, or a hang. No answer, and no finding either."""


def run(world, work, environment=None, deadline_s=300):
    """work(rank) on each of `world` ranks: their answers (None of one that failed) and their logs. Throws Late."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        pids = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                _rank(rank, world, work, folder, environment or {})
            pids.append(pid)
        if not _wait(pids, time.monotonic() + deadline_s):
            raise Late(f"{world} ranks ran past {deadline_s} s")
        files = [pathlib.Path(folder) / f"{rank}.json" for rank in range(world)]
        answers = [json.loads(file.read_text()) if file.exists() else None for file in files]
        return answers, [file.with_suffix(".log").read_text(errors="replace") for file in files]


def _wait(pids, end):
    """One rank that failed leaves the others in a collective: they get a moment, then SIGKILL. False: past the deadline."""
    left, failed_at = set(pids), None
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.discard(pid)
                if status != 0 and failed_at is None:
                    failed_at = time.monotonic()
        now = time.monotonic()
        if now > end or (failed_at is not None and now > failed_at + 10):
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            for pid in left:
                os.waitpid(pid, 0)
            return failed_at is not None
        time.sleep(0.005)
    return True
