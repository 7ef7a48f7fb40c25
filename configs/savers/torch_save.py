"""torch.save to a temporary name, synced and renamed: configs/checkpoint_torch.yaml tries it. Copy this file, and put your
own model into train() and your own saver into save() and load(); docs/savers.md leads through it.

train() is all that serve.py calls. It must do the same each time: seed everything, keep times and paths out of what it returns.
"""

import os

import torch

import serve
from small_model import make_model, make_optimizer, take_step


def save(out, state):
    """Saves a state into the folder `out`, beside or over older ones."""
    path = os.path.join(out, "checkpoint.pt")
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "xb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(out, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load(out):
    """The newest state in the folder `out`; None if there is none. An error means that it cannot be loaded."""
    path = os.path.join(out, "checkpoint.pt")
    return torch.load(path, weights_only=True) if os.path.exists(path) else None


def train(out, last, must_resume=False):
    """Goes on from what stands in `out` up to step `last`, and saves each step; `must_resume`: needs something to go on from, and
    saves nothing. Returns the step at which it began, and the parts that {resume} shows, each with a hash of its own."""
    model = make_model()
    optimizer = make_optimizer(model)
    began = 0
    if (state := load(out)) is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        began = state["step"]
    elif must_resume:
        raise serve.NothingToResume("there is no checkpoint.pt")
    for step in range(began, last):
        take_step(model, optimizer, step)
        if not must_resume:
            save(out, {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
    moments = {f"{i}.{name}": value for i, of_one in optimizer.state_dict()["state"].items() for name, value in of_one.items()}
    return began, [("model", serve.tensors_hash(model.state_dict())), ("optimizer", serve.tensors_hash(moments))]
