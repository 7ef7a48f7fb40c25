"""What the probe finds out by itself of a run: states of random generators, precision, optimizers that wrap others."""

import json
import pathlib

import torch
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

import bits
import models
from case import QUIET, Case, code_of, environment, need
from lockstep_probe import hashing, random_state, trace_file, zero
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


class Zero(Trainer):
    """Each rank updates some of the parameters, and holds the moments of those alone."""

    rate, decay = 0.01, 0.1

    def make_optimizer(self):
        if self.world == 1:
            return torch.optim.Adam(self.model.parameters(), lr=self.rate, weight_decay=self.decay)
        return ZeroRedundancyOptimizer(self.called.parameters(), optimizer_class=torch.optim.Adam, lr=self.rate, weight_decay=self.decay)

    def all_optimizers(self):
        return []


class ZeroGroups(Zero):
    def make_optimizer(self):
        bias = [p for n, p in self.model.named_parameters() if "bias" in n]
        groups = [{"params": [p for n, p in self.model.named_parameters() if "bias" not in n]}, {"params": bias, "weight_decay": 0.0}]
        return ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, lr=self.rate, weight_decay=self.decay)


class DecaysTwice(Zero):
    """From step 2 on: what the update should be follows from moments that lie on two ranks."""

    def before_step(self, step):
        if step == 2:
            self.optimizer.param_groups[0]["weight_decay"] = 2 * self.decay


class PlainAdam(Zero):
    def make_optimizer(self):
        return torch.optim.Adam(self.model.parameters(), lr=self.rate, weight_decay=self.decay)


def moments(bench, name, rank):
    """Parameters of whose moments the rank has recorded values at step 1."""
    steps = dict(trace_file.read_steps(bench.path(f"{name}/rank-{rank}.trace")))
    kept = [r for r in steps[1] if r.name.startswith("first_moment/") and r.phase == trace_file.PHASES["snapshot"] and r.values.numel()]
    return {r.name.removeprefix("first_moment/") for r in kept}


def zero_redundancy(bench):
    bench.train(Zero, 3, "run", lines=3)
    says = {"name": "adam", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
    need(all(declared(bench, "run", rank).get("optimizer") == says for rank in range(3)), f"declared is {declared(bench, 'run')}")
    own = [moments(bench, "run", rank) for rank in range(3)]
    names = {name for name, _ in models.Mlp().named_parameters()}
    need(set.union(*own) == names and sum(map(len, own)) == len(names), f"moments of each parameter once: {own}")
    bench.train(ZeroGroups, 2, "groups", lines=3)
    found = declared(bench, "groups")
    need(found["optimizer"]["name"] == "adamw" and {p["weight_decay"] for p in found["parameters"]} == {0.0}, f"declared of groups is {found}")
    return f"{len(names)} parameters over 3 ranks"


def zero_is_adam(bench):
    bench.train(PlainAdam, 2, "plain", lines=3)
    bench.train(Zero, 2, "zero", lines=3)
    found = bench.compare(bench.path("plain"), bench.path("zero"))
    # The broadcasts of updated parameters are the one difference.
    need(found["verdict"] in QUIET and not found["first_divergence"] and not found["config_differences"], f"of ZeRO and Adam {found}")
    return found["verdict"]


def zero_and_one_process(bench):
    bench.train(Zero, 1, "one", lines=10)
    bench.train(Zero, 2, "two", lines=10, against=bench.path("one"))
    found = bench.compare(bench.path("one"), bench.path("two"))
    need(found["verdict"] == "within_envelope", f"of one process and two ranks {found}")
    bench.train(DecaysTwice, 2, "wrong", lines=10, against=bench.path("one"))
    found = bench.compare(bench.path("one"), bench.path("wrong"))
    need(code_of(found) == "weight-decay-twice" and found["first_divergence"]["step"] == 2, f"of decay twice {found}")
    return "within_envelope; decay twice: " + code_of(found)


def zero_without_lines(bench):
    def program(run):
        with environment(LOCKSTEP_TRACE=run.folder, LOCKSTEP_LEVEL="hash"):
            zero.arm()
            Zero(run, lines=0).train()

    bench.run(program, 2, "run")
    steps = dict(trace_file.read_steps(bench.path("run/rank-0.trace")))
    need(declared(bench, "run").get("optimizer", {}).get("name") == "adam", f"declared is {declared(bench, 'run')}")
    applied = [r.name for r in steps[1] if r.phase == trace_file.PHASES["applied gradients"]]
    need(sorted(steps) == [-1, 0, 1, 2, 3] and len(applied) == len(set(applied)) == 6, f"steps {sorted(steps)}, applied {applied}")


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
    Case("facts: ZeroRedundancyOptimizer", zero_redundancy),
    Case("facts: ZeroRedundancyOptimizer is Adam", zero_is_adam),
    Case("facts: ZeroRedundancyOptimizer and one process", zero_and_one_process),
    Case("facts: ZeroRedundancyOptimizer without lines", zero_without_lines),
]  # fmt: skip
