"""torch.save to one name by two processes, as happens where every rank saves. Each has a state of its own, of its own size."""

import os
import sys

import torch

import serve
from small_model import make_model, make_optimizer, take_step

RANKS = 2


def path_of(out):
    return os.path.join(out, "checkpoint.pt")


def load(out, model, optimizer, must_resume):
    if not os.path.exists(path_of(out)):
        if must_resume:
            raise serve.NothingToResume("there is no checkpoint.pt")
        return 0, torch.zeros(16)
    state = torch.load(path_of(out), weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"], state["random"]


def save(out, model, optimizer, step, rank):
    torch.save(
        {
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": torch.full((16 + 2000 * rank,), float(rank)),
        },
        path_of(out),
    )


def train(out, last, must_resume=False):
    model = make_model()
    optimizer = make_optimizer(model)
    began, random = load(out, model, optimizer, must_resume)
    for step in range(began, last):
        take_step(model, optimizer, step)
    if not must_resume:
        save_on_all_ranks(out, model, optimizer, last)
    return began, [("weights", serve.tensors_hash(model.state_dict())), ("random", f"{random.min().item()} {random.max().item()} {len(random)}")]


def save_on_all_ranks(out, model, optimizer, step):
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            try:
                save(out, model, optimizer, step, rank)
            except BaseException as error:
                print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
                serve.leave(4)
            serve.leave(0)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise RuntimeError(f"a rank failed to save: {statuses}")
