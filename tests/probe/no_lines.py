"""Programs without a line for the probe, started as `lockstep trace` starts them: their traces compare as those with lines."""

import json
import pathlib
import struct
import warnings

from case import QUIET, Case, code_of, need
from lockstep_probe import heartbeat
from trainer import Trainer

START = """
import os, sys
import torch, torch.nn as nn, torch.distributed as dist
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
x, y = torch.randn(48, 6), torch.randint(0, 3, (48,))
net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
"""
LOOP = """
for step in range(4):
    rows = [(step * 12 + k) % 48 for k in range(rank, 12, world)]
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x[rows]), y[rows]) * FACTOR
    loss.backward()
    optimizer.step()
    AFTER
    if dist.get_rank() == 0:
        print(f"step {step}")
"""
MODELS = {
    "ddp": "model = nn.parallel.DistributedDataParallel(net)\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.01)\n",
    "optimizer first": "optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)\nmodel = nn.parallel.DistributedDataParallel(net)\n",
    "fsdp2": "from torch.distributed.fsdp import fully_shard\nmodel = fully_shard(net) if world > 1 else net\n"
             "optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)\n",
    "averaged": "model = net\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
}
AVERAGE = "[(dist.all_reduce(p.data), p.data.div_(world)) for p in net.parameters() if world > 1]"  # fmt: skip


def script(kind, factor="1", after=None):
    after = after or (AVERAGE if kind == "averaged" else "pass")
    return START + MODELS[kind] + LOOP.replace("FACTOR", factor).replace("AFTER", after)


def check(kind, wrong=("world",)):
    def on_bench(bench):
        a, _ = bench.script(script(kind), 1, "a")
        b, said = bench.script(script(kind), 2, "b")
        need(said.count("step 3") == 1 and "4 steps at level hash" in said, f"the program said: {said}")
        quiet = bench.compare(a, b)
        need(quiet["verdict"] in QUIET, f"{quiet['verdict']}: {quiet['sentence']}")
        c, _ = bench.script(script(kind, *wrong), 2, "c")
        seen = bench.compare(a, c)
        need(seen["verdict"] == "divergent" and seen["first_divergence"]["step"] == 0, f"not seen: {seen['sentence']}")
        return f"{quiet['verdict']}; wrong: {code_of(seen)}"

    return on_bench


def known_by_the_group(bench):
    """Ranks without RANK in their environment, as torch.multiprocessing.spawn makes them: heartbeats are those of the process group's ranks."""
    pulses = bench.folder / "pulses"
    pulses.mkdir()
    (pulses / "heartbeat").write_bytes(bytes(2 * heartbeat.SLOT_BYTES))
    bench.script(script("ddp"), 2, "a", LOCKSTEP_HEARTBEAT=str(pulses / "heartbeat"), RANK=None, WORLD_SIZE=None)
    said = [json.loads((pulses / f"rank-{rank}.hello.json").read_text()) for rank in range(2)]
    need([each["world_size"] for each in said] == [2, 2] and said[0]["pid"] != said[1]["pid"], f"the ranks said {said}")
    slots = (pulses / "heartbeat").read_bytes()
    steps = [struct.unpack_from("<q", slots, rank * heartbeat.SLOT_BYTES)[0] for rank in range(2)]
    need(steps == [3, 3], f"steps in the heartbeats: {steps}")
    return ""


def without_a_folder(bench):
    """Not a word without LOCKSTEP_TRACE, and no file: with lines in the program, and warnings as errors."""

    def program(run):
        warnings.simplefilter("error")
        folder = pathlib.Path(run.folder)
        before = sorted(p.name for p in folder.iterdir())
        trainer = Trainer(run, lines=3, out="").train()
        need(trainer.probe.is_off, "the probe is on")
        need(sorted(p.name for p in folder.iterdir()) == before, "files were made")

    said = bench.run(program, 2, "a")
    need(not any(said), f"said: {said}")
    return ""


def without_warnings(bench):
    """A traced training with warnings as errors."""

    def program(run):
        warnings.simplefilter("error")
        Trainer(run).train().probe.finish()

    said = bench.run(program, 2, "a")
    need("Warning" not in "".join(said) and "4 steps" in said[0] and not said[1], f"said: {said}")
    return ""


CASES = [
    Case("no lines: DDP", check("ddp")),
    Case("no lines: the optimizer before DDP", check("optimizer first")),
    Case("no lines: FSDP2", check("fsdp2")),
    Case("no lines: parameters averaged after the update", check("averaged")),
    Case("no lines: weights averaged, not biases", check("averaged", ("1", AVERAGE.replace("1]", "1 and p.dim() > 1]")))),
    Case("no lines: heartbeats of ranks that the group alone knows", known_by_the_group),
    Case("nothing without LOCKSTEP_TRACE", without_a_folder),
    Case("no warnings", without_warnings),
]
