"""`lockstep check --resumed` on trainers that lose one kind of state each when they resume, on all ranks or on one, and on the one that loses none."""

import json
import os
import pathlib
import subprocess
import sys

from case import Case, need

SCRIPT = """
import argparse, os, random
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--out")
parser.add_argument("--lose", default="")
parser.add_argument("--on", type=int, default=-1)
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--load", type=int, default=1)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")
lose = options.lose if options.on in (-1, rank) else ""
torch.manual_seed(options.seed) if options.seed else None
data = TensorDataset(torch.randn(120, 6), torch.randint(0, 3, (120,)))
net = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Dropout(0.1), nn.Tanh(), nn.Linear(9, 3))
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
model = nn.parallel.DistributedDataParallel(net) if world > 1 else net
torch.manual_seed(7 + rank) if options.seed else None
path, start, kept = f"{options.out}/checkpoint-{rank}.pt", 0, None
parts = dict(model=net, average=average, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
if options.load and os.path.exists(path):
    kept = torch.load(path, weights_only=False)
    start = kept["step"]
    if lose == "weights":
        kept["model"].update({name: value for name, value in net.state_dict().items() if name.startswith("4.")})
    for state in kept["optimizer"]["state"].values():
        for key in {"moments": ("exp_avg", "exp_avg_sq"), "counter": ("step",)}.get(lose, ()):
            state[key].zero_()
    for name, part in parts.items():
        if lose != name:
            part.load_state_dict(kept[name])
sampler = DistributedSampler(data, world, rank, seed=5)
step, passed = 0, 0
for epoch in range(9):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=12 // world, sampler=sampler):
        passed += 1
        if kept and lose != "generators":
            torch.set_rng_state(kept["generator"]) if passed in (1, start + 1) else None
        if passed <= start and lose != "position":
            continue
        step = max(step, start) + 1
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scheduler.step()
        average.update_parameters(net)
        if step % options.every == 0:
            torch.save({**{name: part.state_dict() for name, part in parts.items()}, "step": step, "generator": torch.get_rng_state()}, path)
"""
DIFFERENT = {"weights": "weights", "moments": "moments", "counter": "counter", "scheduler": "schedule", "scaler": "scaler", "average": "averages", "position": "rows",
             "generators": "generators"}  # fmt: skip
CODES = {"moments": "optimizer-state-lost", "counter": "optimizer-counter-lost", "scheduler": "schedule-shifted", "position": "position-lost"}


def checked(bench, *words, world=1, more=()):
    """What the command says, and its exit code."""
    script = pathlib.Path(bench.path("train.py"))
    script.write_text(SCRIPT)
    start = ["torchrun", "--nproc-per-node", "{ranks}"] if world > 1 else ["python"]
    line = [bench.lockstep, "check", "--json", "--resumed", "3", "--steps", "6", "--ranks", str(world), "--out", bench.path("check"), *more]
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([*line, "--", *start, str(script), "--out", "{out}", *words], capture_output=True, text=True, check=False, env=environment)
    need(done.stdout.startswith("{"), done.stderr)
    return json.loads(done.stdout), done.returncode


def off(found):
    return {fact["name"]: fact["text"] for fact in found["facts"] if fact["state"] == "different"}


def right(world, *words, more=()):
    def check(bench):
        found, code = checked(bench, *words, world=world, more=more)
        need(code == 0 and found["verdict"] == "same", f"{code}: {found['headline']}, {found['facts']}")
        need(all(fact["state"] == "same" for fact in found["facts"]), f"not compared: {found['facts']}")
        return f"{found['headline']} {found['because']}"

    return check


def wrong(lose, world=1, on=-1):
    def check(bench):
        found, code = checked(bench, "--lose", lose, "--on", str(on), world=world)
        states = {name: text for name, text in off(found).items() if name != "what follows"}
        # A loader that begins anew takes other numbers from the process's generator.
        need(set(states) - ({"generators"} if lose == "position" else set()) == {DIFFERENT[lose]}, f"{found['headline']}: {found['facts']}")
        need(code == 1 and found["headline"] == f"resumed otherwise at step 3: {CODES.get(lose, DIFFERENT[lose] + ' lost')}", f"{code}: {found['headline']}")
        need(found["fix"] and (on < 0) == all("on rank" not in text for text in states.values()), f"{found['fix']}; {states}")
        return f"{found['headline']}: {states[DIFFERENT[lose]]}"

    return check


def says(code, headline, *words, more=()):
    def check(bench):
        found, status = checked(bench, *words, more=more)
        need(status == code and headline in f"{found['headline']} {found['because']}", f"{status}: {found['headline']} {found['because']}")
        return found["headline"]

    return check


CASES = [
    Case("resumed: right, two ranks", right(2)),
    Case("resumed: right, from an older checkpoint", right(1, "--every", "2")),
    *[Case(f"resumed: {lose} lost", wrong(lose)) for lose in DIFFERENT],
    *[Case(f"resumed: {lose} lost on one rank", wrong(lose, 2, 1)) for lose in ("moments", "generators")],
    Case("resumed: nothing loaded", says(1, "did not resume", "--load", "0")),
    Case("resumed: nothing saved", says(1, "did not resume", "--every", "4")),
    Case("resumed: no seed", says(5, "differ by themselves", "--seed", "0")),
]
