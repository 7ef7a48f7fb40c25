"""A trainer or a loss of another library, and the program that uses it: a script as its user writes one."""

import dataclasses
import os
import sys
import typing

import torch

STEPS = 12  # more than are looked at
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


@dataclasses.dataclass
class Subject:
    """`reference`: settings of the one process; `settings`: of the ranks. `expect`: codes that name its mistake, if it makes one, and `step` its first."""

    name: str
    program: typing.Callable
    settings: dict = dataclasses.field(default_factory=dict)
    reference: dict = dataclasses.field(default_factory=dict)
    expect: tuple = ()
    step: int = 0
    known: str = ""


def main(subjects):
    """NAME reference|run"""
    name, side = sys.argv[1:]
    subject = next(each for each in subjects if each.name == name)
    subject.program(**(subject.reference if side == "reference" else subject.settings))


def distributed(model, **options):
    if WORLD == 1:
        return model
    torch.distributed.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model, **options)


def share(rows, shares=(8, 8, 8)):
    """This rank's of a batch's rows."""
    begin = sum(shares[:RANK])
    return rows if WORLD == 1 else rows[begin : begin + shares[RANK]]
