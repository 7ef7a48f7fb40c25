"""Accelerate: save_state with automatic names and total_limit=1; resume by load_state of the newest folder."""

import os

from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

import serve
from small_model import make_model, make_optimizer, take_step


class Step:
    """The position, which load_state restores with the rest."""

    value = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def train(out, last, must_resume=False):
    folder = os.path.join(out, "checkpoints")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    if not names and must_resume:
        raise serve.NothingToResume("there is no checkpoint folder")
    numbers = [int(name.split("_")[1]) for name in names]
    accelerator = Accelerator(
        cpu=True,
        project_config=ProjectConfiguration(
            project_dir=out, automatic_checkpoint_naming=True, total_limit=1, iteration=max(numbers, default=-1) + 1
        ),
    )
    model = make_model()
    model, optimizer = accelerator.prepare(model, make_optimizer(model))
    step = Step()
    accelerator.register_for_checkpointing(step)
    if names:
        accelerator.load_state()
    began = step.value
    while step.value < last:
        take_step(model, optimizer, step.value)
        step.value += 1
        if not must_resume:
            accelerator.save_state()
    return began, [("weights", serve.tensors_hash(accelerator.unwrap_model(model).state_dict()))]
