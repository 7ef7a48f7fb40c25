"""Planted faults of the twin, by the names of `lockstep list mutants`; those of `EXTRA` are not in that list.

A fault acts from its `first` step on, or at that step alone where it says so. `causes` are the causes of
`lockstep explain` that are right for it; `says` is a pattern of words with which any other tool names it.
"""

import torch

from twin import Settings

STEP = 3  # faults of later steps begin here
ENERGY = Settings()
CLASSIFY = Settings(trainer="classify")
ACCUMULATED = Settings(trainer="classify", accumulation=3)
NORM = Settings(trainer="classify", norm=True)
WORKLOADS = {"energy": ENERGY, "classify": CLASSIFY, "accumulated": ACCUMULATED, "norm": NORM}

FAULTS = {}
EXTRA = set()


def planted(causes, workload="energy", first=STEP, says="", extra=False):
    def register(made):
        fault = made()
        fault.name, fault.first, fault.workload = made.__name__, first, workload
        fault.settings = WORKLOADS[workload]
        fault.causes, fault.says, fault.help = set(causes.split()), says, made.__doc__
        FAULTS[fault.name] = fault
        if extra:
            EXTRA.add(fault.name)
        return made

    return register


def bit_flipped(tensor, bit):
    with torch.no_grad():
        word = tensor.reshape(-1)[:1].view(torch.int32)
        tensor.view(-1)[:1] = (word ^ (1 << bit)).view(torch.float32)
