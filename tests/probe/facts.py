"""What the probe finds out by itself of a run: states of random generators, precision, optimizers that wrap others."""

import pathlib

import torch

from case import Case, need
from lockstep_probe import hashing, random_state, trace_file
from trainer import Trainer


class Draws(Trainer):
    """Takes a random number between steps 1 and 2."""

    def before_step(self, step):
        if step == 2:
            torch.rand(1)


def _counted(function, calls):
    def counting(*args):
        calls.append(1)
        return function(*args)

    return counting


def random_states(bench):
    def program(run):
        states, calls = random_state.states, []
        random_state.states = _counted(states, calls)
        try:
            trainer = Draws(run, lines=3)
            expected = hashing.load().xxh3(hashing.raw(torch.get_rng_state()))
            trainer.train().probe.finish()
        finally:
            random_state.states = states
        found = {step: [r.hash for r in records if r.name == "process/torch"] for step, records in trace_file.read_steps(run.folder + "/rank-0.trace")}
        need(found == {-1: [], 0: [], 1: [expected], 2: [], 3: []}, f"states of process/torch {found}, not {expected} at step 1 alone")
        need(len(calls) == trainer.steps + 1, f"{len(calls)} times in {trainer.steps} steps")

    bench.run(program, 1, "run")
    return "once a step"


def header(bench, name, rank=0):
    """What a run's header declares."""
    return trace_file.header_of(pathlib.Path(bench.path(name)) / f"rank-{rank}.trace")["declared"]


CASES = [Case("facts: random states", random_states)]
