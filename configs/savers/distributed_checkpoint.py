"""torch.distributed.checkpoint on two Gloo ranks: a folder a step, and the newest folder that has its .metadata is loaded.
configs/checkpoint_distributed.yaml tries it; torch_save.py says what train() must do. PyTorch needs NumPy for it."""

import datetime
import glob
import os
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import serve
from small_model import make_model, make_optimizer, take_step

RANKS = 2
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def newest(out):
    steps = [
        int(name.split("_")[1])
        for name in os.listdir(out)
        if name.startswith("step_") and os.path.exists(os.path.join(out, name, ".metadata"))
    ]
    return max(steps, default=0)


def state_of(model, optimizer, step, rank):
    weights, moments = get_state_dict(model, optimizer)
    random = torch.full((16,), float(100 * step + rank))
    return {"model": weights, "optimizer": moments, "step": torch.tensor(step), f"random_{rank}": random}


def rank_main(rank, store, out, last, must_resume, result):
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=datetime.timedelta(seconds=5)
    )
    model = make_model()
    optimizer = make_optimizer(model)
    began = newest(out)
    if began == 0 and must_resume:
        raise serve.NothingToResume("no folder has a .metadata")
    state = state_of(model, optimizer, 0, rank)
    if began > 0:
        dcp.load(state, checkpoint_id=os.path.join(out, f"step_{began}"))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        began = int(state["step"])
    random = state[f"random_{rank}"]
    for step in range(began, last):
        take_step(model, optimizer, step)
        if not must_resume:
            dcp.save(state_of(model, optimizer, step + 1, rank), checkpoint_id=os.path.join(out, f"step_{step + 1}"))
    if result:
        with open(f"{result}.{rank}", "w") as file:
            loaded = f" {began} {random.tolist()}" if must_resume else ""
            file.write(f"{began}\n{serve.tensors_hash(model.state_dict())}{loaded}\n")
    dist.destroy_process_group()


def run_rank(rank, *arguments):
    try:
        rank_main(rank, *arguments)
    except serve.NothingToResume as error:
        print(f"nothing to resume: {error}", file=sys.stderr)
        serve.leave(3)
    except BaseException as error:
        with open(f"{arguments[0]}.problem.{rank}", "w") as file:
            file.write(f"rank {rank}: {type(error).__name__}: {error}")
        serve.leave(4)
    serve.leave(0)


def train(out, last, must_resume=False):
    scratch = tempfile.mkdtemp()
    store, result = os.path.join(scratch, "store"), os.path.join(scratch, "result")
    children = []
    try:
        for rank in range(RANKS):
            child = os.fork()
            if child == 0:
                run_rank(rank, store, out, last, must_resume, result)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if 3 in statuses:
            raise serve.NothingToResume("no folder has a .metadata")
        if any(statuses):
            problems = [open(path).read() for path in sorted(glob.glob(f"{store}.problem.*"))]
            raise RuntimeError("; ".join(problems) or f"ranks ended with {statuses}")
        told = [open(f"{result}.{rank}").read().split("\n") for rank in range(RANKS)]
        return int(told[0][0]), [(f"rank {rank}", told[rank][1]) for rank in range(RANKS)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def warm_up(target, scratch):
    """Without ranks: a process that has a process group must not be forked."""
    model = make_model()
    optimizer = make_optimizer(model)
    take_step(model, optimizer, 0)
    state = state_of(model, optimizer, 1, 0)
    dcp.save(state, checkpoint_id=os.path.join(scratch, "step_1"), no_dist=True)
    dcp.load(state, checkpoint_id=os.path.join(scratch, "step_1"), no_dist=True)
