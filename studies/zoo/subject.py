"""A trainer or a loss of another library, and one rank's run of it."""

import dataclasses
import os
import typing

ZERO, THREE, TEN = "0", "3", "10"
NONE = "none"  # not traced


@dataclasses.dataclass
class Subject:
    """`reference`: settings of the one process; `settings`: of the three ranks. `expect`: "quiet", or the codes that name its mistake.

    `groups`: parameters by what their names begin with, for the table of factors. `lines`: the probe's ways in which it is run.
    """

    library: str
    name: str
    program: typing.Callable
    settings: dict = dataclasses.field(default_factory=dict)
    reference: dict = dataclasses.field(default_factory=dict)
    expect: typing.Union[str, tuple] = "quiet"
    step: int = 0  # the first step that differs
    groups: dict = dataclasses.field(default_factory=lambda: {"all": ("",)})
    lines: tuple = (ZERO, THREE)
    layout: str = "24 rows; 3 × 8"
    known: str = ""

    @property
    def key(self):
        return f"{self.library}: {self.name}"


class Silent:
    """Stands where the probe would, in a run without its lines."""

    def rows(self, *_, **__):
        pass

    step = metric = term = replay = rows


class Run:
    """What a program knows of its run. `start`: a file with the weights to begin with; `keep`: the file that gets the last ones."""

    def __init__(self, rank, world, folder, lines, steps, start=None, keep=None):
        self.rank, self.world, self.folder, self.lines, self.steps = rank, world, str(folder), lines, steps
        self.start, self.keep = start, keep

    @property
    def traced(self):
        return self.lines not in (ZERO, NONE)

    def attach(self, model, optimizer, **declared):
        """The first of the probe's lines."""
        if not self.traced:
            return Silent()
        import lockstep_probe

        return lockstep_probe.attach(model, optimizer, **declared)

    def begin(self, model):
        import torch

        if self.start:
            model.load_state_dict(torch.load(self.start, weights_only=True))
        return model

    def end(self, model):
        import torch

        if self.keep and self.rank == 0:
            torch.save({name: value.clone() for name, value in model.state_dict().items()}, self.keep + ".new")
            os.replace(self.keep + ".new", self.keep)


def share(rows, rank, world, shares=(12, 7, 5)):
    """This rank's of a batch's 24 rows: unequal ones."""
    if world == 1:
        return rows
    begin = sum(shares[:rank])
    return rows[begin : begin + shares[rank]]
