"""Starts the ranks of a run: processes forked from this one, which has imported torch once, joined by Gloo."""

import datetime
import os
import pathlib
import shutil
import signal
import sys
import time
import traceback

import torch
import torch.distributed as dist

DEADLINE_S = 300


class Rank:
    """What a program knows of its run. `wrong`: whether it makes the report's mistake."""

    def __init__(self, rank, world, folder, wrong):
        self.rank, self.world, self.folder, self.wrong = rank, world, str(folder), wrong

    def sum(self, tensor, group=None):
        """The sum over ranks, as a new tensor."""
        tensor = tensor.detach().clone()
        dist.all_reduce(tensor, group=group)
        return tensor

    def mean(self, tensor, group=None):
        return self.sum(tensor, group) / dist.get_world_size(group)

    def gather(self, tensor, group=None):
        """Every rank's tensor, in rank order; without gradient."""
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, tensor.detach().contiguous(), group=group)
        return parts


def _be(rank, world, folder, program, wrong):
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        dist.init_process_group("gloo", store=dist.FileStore(str(folder / "rendezvous"), world), rank=rank, world_size=world,
                                timeout=datetime.timedelta(seconds=DEADLINE_S))  # fmt: skip
        torch.manual_seed(1)
        program(Rank(rank, world, folder, wrong))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def run(program, world, folder, wrong=False):
    """Runs `program` on `world` ranks; the traces lie in `folder` afterwards. Returns what each rank has printed.

    Throws RuntimeError with a failed rank's output.
    """
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ranks = {}
    for rank in range(world):
        child = os.fork()
        if child == 0:
            _be(rank, world, folder, program, wrong)
        ranks[child] = rank
    failed, deadline = [], time.monotonic() + DEADLINE_S
    while ranks:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in ranks:
            rank = ranks.pop(child)
            failed += [rank] if status else []
        elif child == 0:
            time.sleep(0.01)
        if failed or time.monotonic() > deadline:
            for child in ranks:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            rank = failed[0] if failed else min(ranks.values())
            said = (folder / f"rank-{rank}.log").read_text()
            raise RuntimeError(f"rank {rank} of {folder.name} {'failed' if failed else 'did not end'}: {said}")
    (folder / "rendezvous").unlink(missing_ok=True)
    logs = [folder / f"rank-{rank}.log" for rank in range(world)]
    said = [log.read_text() for log in logs]
    for log in logs:
        log.unlink()
    return said
