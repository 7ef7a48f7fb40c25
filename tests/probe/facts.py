"""What the probe finds out by itself of a run: states of random generators, precision, optimizers that wrap others."""

import json
import pathlib

import torch
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import bits
from case import Case, code_of, need
from lockstep_probe import hashing, random_state, trace_file
from trainer import Sharded, Trainer


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


def declared(bench, name, rank=0):
    return trace_file.header_of(pathlib.Path(bench.path(name)) / f"rank-{rank}.trace")["declared"]


class Wide(Trainer):
    def make_model(self):
        return super().make_model().double()

    def inputs(self, ids):
        return super().inputs(ids).double()


class InHalf(Trainer):
    row_losses = bits.Autocast.row_losses


class AutocastWithin(Trainer):
    """Autocast begins within the model, as Accelerate has it."""

    def wrap(self, model):
        forward = model.forward

        def cast(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return forward(x)

        model.forward = cast
        return super().wrap(model)


class EvaluatesUnderAutocast(Trainer):
    """Only what is not trained on is computed so: before a step, within it, and after its update."""

    def evaluate(self):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            self.model(self.inputs(list(range(4))))

    def before_step(self, step):
        self.evaluate()

    def reduce(self):
        self.evaluate()
        with torch.autocast("cpu", enabled=False):
            pass

    def after_step(self, step):
        self.evaluate()


class ShardedInHalf(Sharded):
    def wrap(self, model):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        for part in (model.second, model):
            fully_shard(part, mp_policy=policy)
        return model


class InTwoPrecisions(Trainer):
    def make_model(self):
        model = super().make_model()
        model.head.double()
        return model

    def row_losses(self, called, x, y):
        return F.cross_entropy(self.model.head(torch.tanh(self.model.first(x)).double()), y, reduction="none")


class CompiledUnseen(Trainer):
    """No forward hook runs in a compiled graph, so that autocast within it would not be seen."""

    def wrap(self, model):
        return torch.compile(model, backend="eager")


def precision(kind, expected, world=1):
    def on_bench(bench):
        bench.train(kind, world, "run", lines=3)
        found = [declared(bench, "run", rank).get("precision") for rank in range(world)]
        need(found == [expected] * world, f"{found}, not {expected}")
        return str(expected)

    return on_bench


def precisions_differ(bench):
    """Two runs in float32 declare the same; one of them under autocast does not, and the verdict says so."""
    a, _ = bench.train(Trainer, 1, "a", lines=3)
    b, _ = bench.train(Trainer, 1, "b", lines=3)
    half, _ = bench.train(InHalf, 1, "half", lines=3)
    found = bench.compare(a, b)
    need(found["verdict"] == "identical" and not found["config_differences"], f"of two equal runs {found}")
    found = bench.compare(a, half)
    said = json.dumps(found["config_differences"])
    need(all(word in said for word in ("precision", "float32", "bfloat16")), f"of another precision {found}")
    return code_of(found)


CASES = [
    Case("facts: random states", random_states),
    *(Case(f"facts: precision, {name}", precision(*of)) for name, *of in (
        ("float32", Trainer, "float32"),
        ("float32, DDP", Trainer, "float32", 2),
        ("float64", Wide, "float64"),
        ("autocast", InHalf, "bfloat16"),
        ("autocast within the model", AutocastWithin, "bfloat16"),
        ("evaluation under autocast", EvaluatesUnderAutocast, "float32"),
        ("FSDP2", Sharded, "float32", 2),
        ("FSDP2 in bfloat16", ShardedInHalf, "bfloat16", 2),
        ("two precisions", InTwoPrecisions, None),
        ("compiled", CompiledUnseen, None),
    )),
    Case("facts: precisions differ", precisions_differ),
]  # fmt: skip
