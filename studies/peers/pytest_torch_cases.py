"""What pytest-torch offers for a training loop, asked of the twin in one process.

PEERS_ASKED: [[fault, workload, seed], …].
"""

import json
import os
import sys

import pytest
import torch

sys.path.insert(0, os.environ["PEERS_SOURCES"])

from alone import from_the_start, settings_for_accumulation  # noqa: E402
from faults import ACCUMULATED, FAULTS, WORKLOADS  # noqa: E402
from twin import Fault, Trainer  # noqa: E402

from pytest_torch import (  # noqa: E402
    TrainingSetup,
    assert_accumulation_equivalent,
    assert_all_params_receive_grad,
    run_training,
)

STEPS = 10
ASKED = [
    pytest.param(fault, workload, seed, id=f"{fault}-{workload}-{seed}", marks=pytest.mark.torch_golden(f"{workload}-{seed}"))
    for fault, workload, seed in json.loads(os.environ["PEERS_ASKED"])
]


def maker(settings, fault):
    def make_setup():
        trainer = Trainer(settings, 0, fault)
        setup = TrainingSetup(trainer.model, trainer.optimizer)
        setup.trainer = trainer
        return setup

    return make_setup


def run_of(fault, workload, seed):
    settings = WORKLOADS[workload].but(seed=seed, steps=STEPS)
    fault = FAULTS.get(fault, Fault())
    batches = list(Trainer(settings, 0, fault).batches())
    return settings, run_training(
        maker(settings, fault), batches, lambda setup, batch: setup.trainer.train_step(*batch), steps=STEPS, seed=seed
    )


@pytest.mark.parametrize("fault,workload,seed", ASKED)
def test_healthy(fault, workload, seed):
    run_of(fault, workload, seed)[1].assert_healthy(min_relative_decrease=0.05)


@pytest.mark.parametrize("fault,workload,seed", ASKED)
def test_rate(fault, workload, seed):
    settings, run = run_of(fault, workload, seed)
    run.assert_lr(lambda step: settings.rate * 0.99**step)


@pytest.mark.parametrize("fault,workload,seed", ASKED)
def test_gradients(fault, workload, seed):
    settings = WORKLOADS[workload].but(seed=seed, accumulation=1)
    trainer = Trainer(settings, 0, from_the_start(fault))
    trainer.step = 0
    _, ids, _ = next(trainer.batches())

    class Losses(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = trainer.model

        def forward(self, ids):
            return trainer.row_losses(self.model, trainer.inputs(ids.tolist()), ids.tolist())

    assert_all_params_receive_grad(Losses(), torch.tensor(ids), lambda rows: trainer.fault.loss(trainer, rows.sum()))


@pytest.mark.parametrize("fault,workload,seed", ASKED)
def test_accumulation(fault, workload, seed):
    planted = FAULTS.get(fault)
    settings = settings_for_accumulation(planted) if planted else (ACCUMULATED if workload != "norm" else None)
    if settings is None or settings.norm:
        pytest.skip("candidates and batch statistics of one batch are not those of its parts")
    settings = settings.but(seed=seed, accumulation=3, clip=0.0)  # clipped gradients hide the factor by which they differ
    batches = [ids for _, ids, _ in Trainer(settings).batches()][:2]

    def make_step(parts):
        def step(setup, ids):
            t, k = setup.trainer, setup.step_index % parts
            if k == 0:
                t.s = settings.but(accumulation=parts)
                t.begin(setup.step_index // parts)
                t.weigh(batches[t.step])
            loss = t.accumulate(ids.tolist(), last=k == parts - 1)
            if k == parts - 1:
                t.finish_step()
            return loss

        return step

    def split(ids, parts):
        return list(ids.chunk(parts))

    data = [torch.tensor(ids) for ids in batches]
    assert_accumulation_equivalent(
        maker(settings, from_the_start(fault)), data, make_step, accumulation_steps=3, split=split, disable_dropout=False
    )


@pytest.mark.parametrize("fault,workload,seed", ASKED)
def test_golden(fault, workload, seed, golden):
    _, run = run_of(fault, workload, seed)
    weights = {n: p.detach() for n, p in run.setup.model.named_parameters()}
    golden.check({**{f"loss of step {k:02d}": torch.tensor(x) for k, x in enumerate(run.losses)}, "weights": weights})
