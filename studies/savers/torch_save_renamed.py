"""torch.save to a temporary name by one process, synced and renamed: how it should be done."""

import os

import torch

import serve
import torch_save_two
from small_model import make_model, make_optimizer, take_step


def save(out, model, optimizer, step):
    path = torch_save_two.path_of(out)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "xb") as file:
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.zeros(16)}, file
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(out, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def train(out, last, must_resume=False):
    model = make_model()
    optimizer = make_optimizer(model)
    began, _ = torch_save_two.load(out, model, optimizer, must_resume)
    for step in range(began, last):
        take_step(model, optimizer, step)
        if not must_resume:
            save(out, model, optimizer, step + 1)
    return began, [("weights", serve.weights_hash(model.state_dict()))]
