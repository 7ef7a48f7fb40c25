"""What the probe finds out by itself of a run: states of random generators, precision, optimizers that wrap others."""

import json
import pathlib
import weakref

import torch
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

import bits
import models
from case import QUIET, Case, code_of, environment, need
from lockstep_probe import hashing, loader, patches, random_state, trace_file, zero
from layouts import TeachesWithBuffers
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
    bench.train(Zero, 1, "one")
    bench.train(Zero, 2, "two")
    found = bench.compare(bench.path("one"), bench.path("two"))
    need(found["verdict"] in QUIET, f"of one process and two ranks {found}")
    bench.train(DecaysTwice, 2, "wrong")
    found = bench.compare(bench.path("one"), bench.path("wrong"))
    need(code_of(found) == "weight-decay-twice" and found["first_divergence"]["step"] == 2, f"of decay twice {found}")
    return "decay twice: " + code_of(found)


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


class Large(Trainer):
    """Of 5 million parameters: some tensors are too large for their values."""

    steps = 2

    def make_model(self):
        model = super().make_model()
        model.wide = torch.nn.Sequential(torch.nn.Linear(models.CLASSES, 2_000_000, bias=False), torch.nn.Linear(2_000_000, models.CLASSES, bias=False))
        return model

    def row_losses(self, called, x, y):
        return F.cross_entropy(self.called(x) if self.world > 1 else called(x), y, reduction="none")

    def wrap(self, model):
        forward = model.forward
        model.forward = lambda x: model.wide(forward(x))
        return super().wrap(model)


def bounded(bench):
    """Values up to 64 MB a rank; what is left out is said, and compared all the same."""
    a, said = bench.train(Large, 1, "a", lines=3)
    b, _ = bench.train(Large, 2, "b", lines=3)
    size = pathlib.Path(a, "rank-0.trace").stat().st_size
    need(size < 70e6 and "step 0 keeps the values of the 6 smallest of 8 tensors" in said[0] and "wide.1.weight" in said[0], f"{size} bytes; {said}")
    found = bench.compare(a, b)
    need(found["verdict"] in QUIET, f"{found}")
    return f"{size / 1e6:.1f} MB; {found['verdict']}"


def no_values(bench):
    with environment(LOCKSTEP_SNAPSHOTS="none"):
        a, said = bench.train(Trainer, 1, "a")
        b, _ = bench.train(Trainer, 2, "b")
    records = [r for _, rs in trace_file.read_steps(a + "/rank-0.trace") for r in rs if r.phase == trace_file.PHASES["parameters"]]
    need(records and all(r.values is None for r in records) and "no values are kept" in said[0], f"{said}")
    return bench.compare(a, b)["verdict"]


class KeepsAlive(Trainer):
    """Trains on a DataLoader's batches: each is gone with its step, and copies of it are known."""

    steps = 3

    def train(self):
        data, before = torch.utils.data.TensorDataset(models.X, models.Y, torch.arange(models.SAMPLES)), None
        self.ids = []
        for x, y, ids in torch.utils.data.DataLoader(data, 24, shuffle=True):
            need(before is None or before() is None, "the batch before is kept alive")
            before = weakref.ref(x)
            self.zero_grad()
            F.cross_entropy(self.called(x.clone() if len(self.ids) else x), y).backward()
            self.update()
            self.ids.append(tuple(ids.tolist()))
            del x, y
        return self


def batches(bench):
    def program(run):
        with environment(LOCKSTEP_TRACE=run.folder):
            zero.arm()
            trainer = KeepsAlive(run, lines=0).train()
        for probe in patches.probes():
            probe.finish()
        found = [next(r.ids for r in records if r.name == "samples") for step, records in trace_file.read_steps(run.folder + "/rank-0.trace") if step >= 0]
        need(found == trainer.ids, f"ids {found}, not {trainer.ids}")

    bench.run(program, 1, "run")


def reused_memory(bench):
    """A batch whose memory was another's, tensors that are parts of one storage, and batches that look alike."""
    loader.install()
    of = lambda data, **more: list(torch.utils.data.DataLoader(data, 8, **more))  # noqa: E731
    parts = of(range(40), collate_fn=lambda ids: models.X[ids[0] : ids[-1] + 1])
    found = [loader.ids_of(((x,), {}), 1, []) for x in parts]
    need(found == [list(range(k, k + 8)) for k in range(0, 40, 8)], f"{found}")
    alike = of(torch.utils.data.TensorDataset(torch.zeros(40, 3)))
    need(loader.ids_of(((alike[1][0].clone(),), {}), 1, []) == [], "a batch that may be another has ids")
    place = parts[0].data_ptr()
    del parts, alike
    for _ in range(40):
        other = torch.randn(8, models.FEATURES)
        need(loader.ids_of(((other,), {}), 1, []) == [], f"other numbers at {other.data_ptr()}, {place} have ids")


def averages_in_snapshots(bench):
    """A step's snapshot has the averages and their buffers as the step before left them."""
    bench.train(TeachesWithBuffers, 1, "a")
    steps = dict(trace_file.read_steps(bench.path("a/rank-0.trace")))

    def values(step, phase, start=""):
        return {r.name.removeprefix(start): r.values for r in steps[step] if r.phase == trace_file.PHASES[phase] and r.name.startswith(start)}

    kept, left = values(2, "snapshot", "average/"), values(1, "averaged weights")
    need({"conv.weight", "buffer/norm.running_mean"} <= kept.keys(), f"{sorted(kept)}")
    need(len(left) == 6 and all(torch.equal(kept[name], left[name]) for name in left), "averages of step 1 and of step 2's snapshot differ")


CASES = [
    Case("facts: values are bounded", bounded),
    Case("facts: no values", no_values),
    Case("facts: batches of a loader", batches),
    Case("facts: batches, memory that is used again", reused_memory),
    Case("facts: averages in snapshots", averages_in_snapshots),
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
