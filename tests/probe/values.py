"""The recorded numbers are those of training, computed beside it: each rank's own gradient, reduced, clipped; weights; the norm.
What a GPU computes of tensors are the C library's bytes."""

import copy
import importlib.util
import os
import subprocess
import sys

import torch
import torch.distributed as dist

import bits
from case import Case, need
from lockstep_probe import trace_file

NEAR = dict(rtol=2e-6, atol=1e-7)


def held(tensor):
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach().clone()


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def watching(kind):
    """The trainer, which keeps what the trace should say."""

    class Watching(kind):
        def train(self):
            self.plain = copy.deepcopy(kind.make_model(self))  # a model without wrapper, for this rank's own gradient
            self.expected = []
            return super().train()

        def zero_grad(self):
            super().zero_grad()
            if self.optimizer is not None:
                with torch.no_grad():
                    for own, p in zip(self.plain.parameters(), self.model.parameters()):
                        own.copy_(whole(p))
                self.plain.skips = getattr(self.model, "skips", False)

        def forward_backward(self, called, ids):
            loss = super().forward_backward(called, ids)
            for p in self.plain.parameters():
                p.grad = None
            micros = self.micro_steps(ids)
            for part in micros:
                y = self.labels(part)
                rows = self.row_losses(self.plain, self.inputs(part), y)
                (rows.sum() * self.share(y, micros)).backward()
            local = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in self.plain.named_parameters()}
            reduced = {}
            for name, gradient in local.items():
                mean = gradient.clone()
                if self.world > 1:
                    dist.all_reduce(mean)
                reduced[name] = mean / self.world
            self.expected.append({"local gradients": local, "reduced gradients": reduced, "loss": float(loss)})
            return loss

        def clip_gradients(self):
            if self.clip is not None:
                norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                self.expected[-1]["norm"] = float(whole(norm))

        def update(self):
            super().update()
            now = self.expected[-1]
            now["applied gradients"] = {n: held(p.grad) for n, p in self.model.named_parameters() if p.grad is not None}
            if getattr(self, "overflow", False):  # the update was left out
                now["applied gradients"] = now["local gradients"] = now["reduced gradients"] = {}
                del now["norm"]
            now["parameters"] = {n: held(p) for n, p in self.model.named_parameters()}
            now["parameters"] |= {"buffer/" + n: b.clone() for n, b in self.model.named_buffers()}

    return Watching


def part_of(tensor, record):
    if record.placement is None or not record.placement.shard or tensor.shape == record.values.shape:
        return tensor
    return tensor[tuple(slice(o, o + n) for o, n in zip(record.placement.offset, record.values.shape))]


def compare(expected, records, exact):
    """What a step's records say otherwise than expected."""
    wrong = []
    for phase in ("local gradients", "reduced gradients", "applied gradients", "parameters"):
        found = {r.name: r for r in records if r.phase == trace_file.PHASES[phase]}
        if not expected[phase] and phase in ("local gradients", "reduced gradients"):
            continue
        if set(found) != set(expected[phase]):
            wrong.append(f"{phase} of {sorted(set(found) ^ set(expected[phase]))}")
            continue
        for name, record in found.items():
            values, right = record.values, part_of(expected[phase][name], record)
            if values is None or values.shape != right.shape:
                wrong.append(f"{phase}/{name} has shape {None if values is None else list(values.shape)}, not {list(right.shape)}")
            elif phase in exact and not torch.equal(values, right):
                wrong.append(f"{phase}/{name} has not the bits")
            elif not torch.allclose(values, right, **NEAR):
                wrong.append(f"{phase}/{name} is {float((values - right).norm() / right.norm().clamp_min(1e-12)):.2g} away")
    if "norm" in expected:
        norm = [float(r.values) for r in records if r.phase == trace_file.PHASES["gradient norm"]]
        if norm != [expected["norm"]]:
            wrong.append(f"gradient norm {norm}, not {expected['norm']}")
    return wrong


def check(kind, world, exact=("local gradients", "applied gradients", "parameters")):
    def on_bench(bench):
        def program(run):
            trainer = watching(kind)(run, lines=3, level="full").train()
            trainer.probe.finish()
            steps = dict(trace_file.read_steps(f"{run.folder}/rank-{run.rank}.trace"))
            assert sorted(steps) == list(range(-1, trainer.steps)), f"steps {sorted(steps)}"
            for step, expected in enumerate(trainer.expected):
                wrong = compare(expected, steps[step], exact)
                assert not wrong, f"rank {run.rank}, step {step}: {wrong}"
                loss = next(float(r.values) for r in steps[step] if r.name == "loss")
                assert loss == expected["loss"], f"loss {loss}, not {expected['loss']}"

        bench.run(program, world, "run")
        return f"{world} rank{'s' if world > 1 else ''}"

    return on_bench


def _case(name, kind, *worlds, **more):
    return [Case(f"numbers: {name}, {world} rank{'s' if world > 1 else ''}", check(kind, world, **more)) for world in worlds]


# The kernels, as their compiler's interpreter runs them.
ON_DEVICE = """
import torch
from lockstep_probe import device_hash, hashing, recorder

native, device = hashing.load(), device_hash.Device(torch.device("cpu"))
assert native.name == "C library", native.name
draw = torch.Generator().manual_seed(7)
special = torch.tensor([float("nan"), 1.5, float("-inf"), -2.0])
given = [(special, -1), (special.double(), -1), (special[:1], -1), (torch.randn((2, 9000), generator=draw), 3)]
for dtype in hashing.DTYPES:
    for shape in ((), (3, 7)):
        values = torch.randint(-8, 8, shape, generator=draw) / 4
        given += [(values.to(dtype), first) for first in (-1, 5) if shape or first < 0]
device.is_open = True
laters = [device.hash(t, first, recorder._with_statistics(t.dtype)) for t, first in given[1:]]
device.is_open = False
first = device.hash(given[0][0], -1, recorder._with_statistics(torch.float32))
bytes(first)
number = device.number(torch.tensor(0.3))
again = device.hash(given[3][0], 3, recorder._alone)
for (tensor, at), later in zip(given, [first, *laters]):
    want, got = native.tensor_record(tensor, native.extents(tensor.shape), at), bytes(later)
    wide = len(want) > 24
    assert want[:8] == got[:8] and want[16 if wide else 12:] == got[16 if wide else 12:], (tensor.dtype, tensor.shape, at, want.hex(), got.hex())
    norm, other = (torch.frombuffer(bytearray(b[8 : 16 if wide else 12]), dtype=torch.float64 if wide else torch.float32) for b in (want, got))
    assert torch.allclose(norm, other, rtol=1e-6, atol=0), (norm, other)
assert bytes(again) == native.tensor_record(given[3][0], native.extents(given[3][0].shape), 3)[:8]
assert float(number) == float(torch.tensor(0.3)), float(number)
print(len(given), "tensors")
"""


def on_device(_bench):
    if importlib.util.find_spec("triton") is None:
        return "skipped: triton is not installed"
    done = subprocess.run([sys.executable, "-c", ON_DEVICE], capture_output=True, text=True, check=False,
                          env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    need(done.returncode == 0, done.stderr)
    return done.stdout.strip()


CASES = [
    Case("numbers: a GPU's kernels", on_device),
    *_case("clipping", bits.Clipped, 1, 3),
    *_case("bucket views", bits.BucketViews, 2),
    *_case("accumulation", bits.Accumulated, 1, 2),
    *_case("a rank leaves a parameter out", bits.Unused, 2),
    *_case("BatchNorm", bits.Buffers, 1),
    *_case("tied weights", bits.Tied, 2),
    *_case("FSDP2", bits.ShardedClipped, 2, 3),
    *_case("FSDP2, accumulation", bits.ShardedAccumulated, 2),
    *_case("GradScaler, one update left out", bits.Scaled, 2, exact=("applied gradients", "parameters")),
]  # fmt: skip
