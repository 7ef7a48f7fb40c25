"""One rank of the twin as a script, as traincheck wants it: it tracks the variable `model` and the calls of PyTorch."""

import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.environ["PEERS_SOURCES"])

from traincheck.instrumentor.control import start_step

from faults import FAULTS, WORKLOADS
from twin import Fault, Trainer, make_model

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.set_num_threads(1)
if world > 1:
    dist.init_process_group("gloo")
steps, seed = int(os.environ["PEERS_STEPS"]), int(os.environ["PEERS_SEED"])
settings = WORKLOADS[os.environ["PEERS_WORKLOAD"]].but(world=world, steps=steps, seed=seed)
model = make_model(settings)
trainer = Trainer(settings, rank, FAULTS.get(os.environ["PEERS_FAULT"], Fault()), model=model)
for step, ids, everything in trainer.batches():
    start_step()  # what traincheck writes into loops that call the optimizer themselves
    trainer.train_step(step, ids, everything)
print("losses", trainer.losses)
if world > 1:
    dist.destroy_process_group()
