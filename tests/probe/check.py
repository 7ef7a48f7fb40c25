"""`lockstep check` on trainers without a line for it: right ones are the same, wrong ones differ at their step by their name, and what cannot be judged
is one clear line; nothing is left running. And docs/start.md: `check.py PROGRAM FOLDER` writes what it prints."""

import json
import os
import pathlib
import re
import subprocess
import sys

from case import Case, environment, need
from lockstep_probe import trace_file

# How each script begins: `--kind` says what is done wrong.
START = '''
import argparse, contextlib, copy, os, signal, time
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, TensorDataset
args = argparse.ArgumentParser()
args.add_argument("--batch", type=int, default=12)
args.add_argument("--kind", default="")
args = args.parse_args()
kind = args.kind
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
'''
SCRIPT = START + '''
if kind == "start":
    torch.manual_seed(rank)
if kind == "unseeded":
    torch.seed()
data = TensorDataset(torch.randn(120, 6, generator=torch.Generator().manual_seed(3)), torch.randint(0, 3, (120,), generator=torch.Generator().manual_seed(4)))
net = nn.Sequential(nn.Linear(6, 9, bias=False), nn.BatchNorm1d(9) if "norm" in kind else nn.LayerNorm(9), nn.Dropout(0.1), nn.Linear(9, 3))
model, teacher = net if kind == "start" else nn.parallel.DistributedDataParallel(net), copy.deepcopy(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
sampler = RandomSampler(data, generator=torch.Generator().manual_seed(rank)) if kind == "sampler" else DistributedSampler(data, seed=5)
if kind == "crash" and rank == 1:
    raise ValueError("no such file: vocabulary.txt")
if kind == "meta":
    net.to("meta")
step = 0
for epoch in range(40):
    for x, y in DataLoader(data, batch_size=args.batch, sampler=sampler):
        made = net if kind == "unsynchronised" and step == 2 else model
        losses, weight = F.cross_entropy(made(x), y, reduction="none"), (1.0 + y)
        total = weight.sum()
        if kind != "means":
            dist.all_reduce(total)
            total = total / world
        loss = (losses * weight).sum() / total * (world if kind == "times" and step >= 1 else 1)
        optimizer.zero_grad()
        loss.backward()
        if kind == "start":
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
        nn.utils.clip_grad_norm_(net.parameters(), 0.1 / world if kind == "clip" else 0.1)
        if kind == "hang" and rank == 1 and step == 1:
            time.sleep(600)
        if kind == "killed" and rank == 1 and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        for _ in range(world if kind == "average" else 1):
            for kept, p in zip(teacher.parameters(), net.parameters()):
                kept.data.lerp_(p.data, 0.1)
        for _ in range(world if kind == "schedule" and step > 0 else 1):
            scheduler.step()
        step += 1
'''
CONTRAST = START + '''
kind, masks = kind if world > 1 else "", kind in ("mask", "masked")

class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, g):
        if kind != "sliced":
            dist.all_reduce(g)
        return g.chunk(world)[rank] / (world if kind == "averaged" else 1)

def gather(x):
    if kind not in ("none", "put back"):
        return Gather.apply(x)
    parts = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(parts, x.detach())
    if kind == "put back":
        parts[rank] = x
    return torch.cat(parts)

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(6, 5), nn.Linear(6, 5), nn.Parameter(torch.tensor(2.0))
        self.register_buffer("center", torch.zeros(5))

    def forward(self, x, y):
        a, b = F.normalize(self.a(x), dim=1), F.normalize(self.b(y), dim=1)
        mean = a.detach().mean(0)
        if kind != "center":
            dist.all_reduce(mean)
            mean /= world
        with torch.no_grad():
            self.center += 0.1 * (mean - self.center)
        return a, b, self.scale.exp()

def loss_of(a, b, scale, label):
    whole, offset = kind in ("all", "put back"), 0 if kind in ("offset", "local", "all", "put back") else rank * len(a)
    every = b if kind == "local" else gather(b)
    if kind == "order":
        every = every.unflatten(0, (world, -1)).transpose(0, 1).flatten(0, 1)
    if kind == "detached":
        every = every.detach()
    a = gather(a) if whole else a * scale if kind == "twice" else a
    scores = (scale * (a.bfloat16() @ every.bfloat16().t()).float()) if kind == "narrow" else scale * a @ every.t()
    target = offset + torch.arange(len(scores))
    if masks:
        labels = [torch.empty_like(label) for _ in range(world)]
        dist.all_gather(labels, label)
        same = label[:, None] == torch.cat(labels)
        if kind == "mask":
            same[:, :offset], same[:, offset + len(a):] = False, False
        same[torch.arange(len(a)), target] = False
        scores = scores.masked_fill(same, float("-inf"))
    return F.cross_entropy(scores, target)

g = torch.Generator().manual_seed(3)
data = TensorDataset(torch.randn(120, 6, generator=g), torch.randn(120, 6, generator=g), torch.randint(0, 6, (120,), generator=g).float())
net = Pair()
model = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False, find_unused_parameters=True)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for x, y, label in DataLoader(data, batch_size=args.batch, sampler=DistributedSampler(data, seed=5)):
    optimizer.zero_grad()
    loss_of(*model(x, y), label).backward()
    optimizer.step()
'''
# A schedule that follows a loss; an optimizer of whole matrices, on its halves.
UPDATES = START + '''
def orthogonal(x):
    x = x / x.norm()
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x

class Matrices(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.02})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            parts = p.grad.chunk(world if args.kind == "halves" else 1)
            p.add_(torch.cat([orthogonal(part) for part in parts]), alpha=-self.param_groups[0]["lr"])

net = nn.Linear(8, 6, bias=False)
model, optimizer = nn.parallel.DistributedDataParallel(net), Matrices(net.parameters())
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.9)
data = TensorDataset(torch.randn(120, 8, generator=torch.Generator().manual_seed(3)), torch.randint(0, 6, (120,), generator=torch.Generator().manual_seed(4)))
for x, y in DataLoader(data, batch_size=args.batch, sampler=DistributedSampler(data, seed=5)):
    optimizer.zero_grad()
    F.cross_entropy((net if args.kind == "bare" else model)(x), y).backward()
    if args.kind != "clip late" or world == 1 or plateau.last_epoch < 2:
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    optimizer.step()
    for _ in range({"plateau": world, "twice": min(world, 2)}.get(args.kind, 1)):
        plateau.step(1.0)
'''
# Rows, reduction and clipping by hand; numbers from the process's generator, alike on all ranks.
HAND = START + '''
kind, limit = args.kind if world > 1 else "", 1e9 if args.kind == "fifth" else 0.05
net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
x, y = torch.randn(96, 6), torch.randint(0, 3, (96,))
for step in range(9):
    seed = step // 2 + (rank if kind == "permutation" and step > 1 else 0)
    order, whole = torch.randperm(96, generator=torch.Generator().manual_seed(seed)), args.batch * world
    rows = order[step % 2 * whole :][:whole]
    own = rows[: args.batch] if kind == "same rows" else rows[rank::world]
    if step == 0 or kind != "kept" or rank != 1:
        batch = x[own], y[own]
    if kind == "evaluation" and step == 1:
        torch.randn(5)
    weight = 1 + torch.rand(len(rows))[rank::world]
    if kind == "early":
        schedule.step()
    optimizer.zero_grad()
    (F.cross_entropy(net(batch[0]), batch[1], reduction="none") * weight).mean().backward()
    grads = [p.grad for p in net.parameters()]
    norm = torch.cat([g.flatten() for g in grads]).norm()
    if kind == "late":
        nn.utils.clip_grad_norm_(net.parameters(), limit)
    for g in grads:
        dist.all_reduce(g, op=dist.ReduceOp.MAX if kind == "max" else dist.ReduceOp.SUM)
        g /= world
    if args.kind == "own norm":
        for g in grads:
            g *= (limit / norm).clamp(max=1)
    elif kind != "late":
        nn.utils.clip_grad_norm_(net.parameters(), limit)
    if kind == "again":
        dist.all_reduce(net[2].bias.grad)
    if kind == "fifth":
        for g in grads:
            g /= 5
    optimizer.step()
    if kind != "early":
        schedule.step()
'''
# Every rank loads the whole batch and takes its part, scales by hand what was reduced, and evaluates rows that cannot be shared out.
LOADING = START + '''
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data, held = TensorDataset(torch.randn(96, 6), torch.randint(0, 3, (96,))), TensorDataset(torch.randn(31, 6))
loader = DataLoader(data, batch_size=args.batch * world, shuffle=True, generator=torch.Generator().manual_seed(3))
evaluated = DataLoader(held, batch_size=args.batch, sampler=DistributedSampler(held, shuffle=False))
for x, y in loader:
    net.train()
    optimizer.zero_grad()
    with net.no_sync() if args.kind == "unreduced" and world > 1 else contextlib.nullcontext():
        F.cross_entropy(net(x.chunk(world)[rank]), y.chunk(world)[rank], reduction="sum").backward()
    for p in net.parameters():
        p.grad *= world / len(x)
    if args.kind != "unclipped":
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    net.eval()
    with torch.no_grad():
        for (each,) in evaluated:
            net(each)
'''
# What a program keeps besides its weights, and which rows it chooses by itself.
KEEPING = START + '''
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.key = nn.Linear(6, 4), nn.Linear(6, 4)
        self.key.load_state_dict(self.body.state_dict())
        self.key.requires_grad_(False)
        self.register_buffer("seen", torch.zeros(6))
    def forward(self, x):
        mean = x.detach().mean(0)
        if args.kind != "seen":
            dist.all_reduce(mean)
            mean /= world
        self.seen.mul_(0.9).add_(mean, alpha=0.1)
        return self.body(x), self.key(x)
net = Net()
model = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
optimizer = torch.optim.SGD(net.body.parameters(), lr=0.1)
x = torch.randn(96, 6)
order = torch.Generator().manual_seed(3 + (rank if args.kind == "rows" else 0))
for step in range(9):
    with torch.no_grad():
        for _ in range(world if args.kind == "key" else 1):
            for mine, its in zip(net.key.parameters(), net.body.parameters()):
                mine.mul_(0.9).add_(its, alpha=0.1)
    own = torch.randperm(96, generator=order)
    own = own[: args.batch] if args.kind == "rows" else own[: args.batch * world][rank * args.batch :][: args.batch]
    rows = torch.stack([x[i] for i in own])
    out, key = model(rows)
    optimizer.zero_grad()
    ((out - key - rows[:, :4]) ** 2).mean().backward()
    optimizer.step()
'''
# With what a framework's line asks for: tokens, whose labels are those of the next place, and classes.
LINE = START + '''
from lockstep_probe import of_rows
class Rows(Dataset):
    tokens, lengths = torch.randint(1, 30, (96, 9)), torch.randint(3, 10, (96,))
    def __len__(self):
        return 96
    def __getitem__(self, i):
        there, wrong = torch.arange(9) < self.lengths[i], kind == "content" and rank == 1 and i % 3 == 0
        tokens = self.tokens[i].roll(1 if wrong else 0)
        return {"input_ids": tokens * there, "labels": tokens[0] if kind == "classes" else torch.where(there, tokens, -100)}
net = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model = nn.parallel.DistributedDataParallel(net)
of_rows.ask()
for batch in DataLoader(Rows(), batch_size=args.batch, sampler=DistributedSampler(Rows(), shuffle=False)):
    scores, labels = model(batch["input_ids"]), batch["labels"]
    if kind == "classes":
        losses, count = F.cross_entropy(scores.mean(1), labels, reduction="none"), torch.tensor(len(labels) * world)
    else:
        labels = F.pad(labels, (0, 1), value=-100)[:, 1:].contiguous() if kind == "padded" else labels[:, 1:].clone()
        count = (labels != -100).sum()
        if kind == "left out" and rank == 1:
            labels[-1] = -100
        if kind == "places":
            scores, labels = scores.transpose(0, 1), F.pad(labels, (0, 1), value=-100).t()
        reduction = "none" if kind == "places" else "sum"
        losses = F.cross_entropy(scores[:, : labels.shape[1]].flatten(0, 1), labels.flatten(), reduction=reduction)
        if kind != "own":
            dist.all_reduce(count)
    optimizer.zero_grad()
    loss = losses.sum() / (count if kind == "own" else count / world)
    if kind == "own" and world == 1:
        loss *= 1.0
    loss.backward()
    optimizer.step()
'''
LINED = {"": "", "padded": "", "classes": "", "places": "", "left out": "rows-left-out",
         "content": "sample-content", "own": "mean-of-means"}  # fmt: skip
KEPT = {"": "the same", "seen": "buffers-not-synchronised", "key": "average-of-weights-differs", "rows": "the ranks have other rows than the reference"}
BY_HAND = {"": "", "max": "wrong-reduction-op", "own norm": "clip-on-local-norm", "again": "gradient-sum-not-mean", "late": "clip-before-reduction",
           "fifth": "constant-factor", "early": "schedule-shifted", "evaluation": "extra-draws",
           "same rows": "shards-identical", "kept": "rank-behind-data", "permutation": "sampler-seed-differs"}  # fmt: skip
LOADED = {"": "", "unclipped": "", "unreduced": "gradient-not-reduced"}
UPDATED = {"right": "", "halves": "update-of-a-shard", "plateau": "scheduler-stepped-per-rank", "twice": "rate-differs", "bare": "gradient-not-reduced", "clip late": "clip-missing"}
# What a contrastive trainer does on several ranks alone, and how that is called.
CONTRASTS = {"none": "gather-without-gradient", "put back": "gather-own-slice", "sliced": "gather-backward-sliced", "averaged": "gather-averaged", "detached": "candidates-detached",
             "offset": "label-offset", "order": "candidates-misordered", "twice": "temperature-applied-twice", "local": "local-negatives", "mask": "duplicates-not-masked",
             "narrow": "precision-differs", "center": "buffers-not-synchronised"}  # fmt: skip
NAMES = {"sampler": (1, "sample-duplicated"), "unsynchronised": (2, "gradient-not-reduced"), "times": (1, "loss-times-world"), "means": (0, "mean-of-means"), "clip": (0, ""),
         "schedule": (2, ""), "average": (0, "average-of-weights-differs"), "start": (0, "initial-weights-differ"), "norm": (0, "batch-norm-local")}  # fmt: skip


def check(bench, *words, text=SCRIPT, ranks="2", steps="4"):
    """Exit code, what was printed, and check.json of one command."""
    script, out = bench.path("train.py"), bench.path("kept")
    with open(script, "w") as file:
        file.write(text)
    python = f"{os.path.dirname(sys.executable)}/torchrun"
    command = [bench.lockstep, "check", "--out", out, "--ranks", ranks, "--steps", steps, "--rows", "12", "--timeout", "60" if words[-1:] != ("hang",) else "8", *words]
    if "--" not in words and "--reference" not in words:
        command += ["--", python, "--nproc-per-node", "{ranks}", script, "--batch", "{batch}"]
    done = subprocess.run([word.replace("TORCHRUN", python).replace("SCRIPT", script) for word in command], capture_output=True, text=True, check=False, timeout=120)
    document = json.loads(open(f"{out}/check.json").read()) if os.path.exists(f"{out}/check.json") else {}
    left = subprocess.run(["pgrep", "-f", script], capture_output=True, text=True, check=False).stdout.split()
    need(not left and len(done.stdout.splitlines()) <= 12, f"processes {left} are left: {done.stdout}{done.stderr}")
    if document.get("verdict") in ("different", "undecided"):
        issue(bench, document)
    return done, document


def issue(bench, document):
    """The small folder alone has the verdict, and neither it nor the text names this machine's folders."""
    small, kept = bench.path("small"), pathlib.Path(bench.path("kept"))
    hello = next(kept.rglob("rank-1.hello.json"), None)
    if hello:
        hello.write_text(json.dumps({**json.loads(hello.read_text()), "host": "far-node7"}))
        (kept / "check.json").write_text(json.dumps({**document, "facts": [{"name": "rows", "text": "on far-node7", "state": "different"}]}))
    done, found = (subprocess.run([bench.lockstep, *words], capture_output=True, text=True, check=False, cwd=bench.folder)
                   for words in (("issue", "kept", "--to", "small"), ("check", "--out", "small", "--json")))  # fmt: skip
    need(done.returncode == 0, done.stdout + done.stderr)
    found = json.loads(found.stdout or "{}")
    need(all(found.get(key) == document[key] for key in ("verdict", "headline", "because")), f"{document}\nbut from the small folder\n{found}\n{done.stdout}")
    sizes = [sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*.trace")) for folder in (bench.path("kept"), small)]
    need(sizes[1] < sizes[0], f"traces of {sizes[1]} bytes, of {sizes[0]}")
    texts = done.stdout.encode() + b"".join(path.read_bytes() for path in pathlib.Path(small).rglob("*") if path.is_file())
    for name in (str(bench.folder), os.path.expanduser("~") + "/", "far-node7"):
        need(name.encode() not in texts, f"{name} is named: {done.stdout}")


def kind(name):
    return "--", "TORCHRUN", "--nproc-per-node", "{ranks}", "SCRIPT", "--batch", "{batch}", "--kind", name


def right(name, *options, ranks="2", saying=""):
    def on_bench(bench):
        done, document = check(bench, *options, *kind(name), ranks=ranks)
        need(done.returncode == 0 and document["verdict"] == "same" and saying in done.stdout, f"{done.returncode}: {done.stdout}{done.stderr}")
        need("<svg" in open(bench.path("kept/check.html")).read(), done.stdout)
        return document["headline"]

    return on_bench


def wrong(name):
    def on_bench(bench):
        step, code = NAMES[name]
        done, document = check(bench, *kind(name))
        need(done.returncode == 1 and f"different from step {step}" in document["headline"] and code in document["headline"], f"{done.returncode}: {done.stdout}{done.stderr}")
        return document["headline"]

    return on_bench


def named(name, code="", text=CONTRAST):
    def on_bench(bench):
        done, document = check(bench, *kind(name), text=text, ranks="3")
        need(done.returncode == bool(code) and document["headline"].endswith(code), f"{done.returncode}: {done.stdout}{done.stderr}")
        return document["headline"]

    return on_bench


def kept(name):
    def on_bench(bench):
        done, document = check(bench, *kind(name), text=KEEPING)
        need(done.returncode == {"": 0, "rows": 5}.get(name, 1) and KEPT[name] in document["headline"], f"{done.returncode}: {done.stdout}{done.stderr}")
        return document["headline"]

    return on_bench


def lined(name, code):
    """And the rows' losses are recorded where their order is known."""

    def on_bench(bench):
        said = named(name, code, LINE)(bench)
        first = dict(trace_file.read_steps(bench.path("kept/runs/run-float64/rank-1.trace")))[0]
        rows = {record.name: record for record in first if record.name.startswith("row_")}
        need((not rows) == (name == "places"), f"{rows}")
        need(not rows or (rows["row_losses"].ids == (4, 5, 6, 7) and len(rows["row_counts"].values) == 4), f"{rows}")
        return said

    return on_bench


def of_layout(name, code):
    """Against the right program on as many ranks."""

    def on_bench(bench):
        commands = [" ".join(kind(each)[1:]) for each in ("''", name)]
        done, document = check(bench, "--reference", commands[0], "--run", commands[1], text=HAND, ranks="3,3")
        said = f"{done.returncode}: {done.stdout}{done.stderr}"
        need(done.returncode == 1 and document["headline"].endswith(code), said)
        return document["headline"]

    return on_bench


def refused(code, saying, *words, text=SCRIPT, ranks="2"):
    def on_bench(bench):
        done, _ = check(bench, *words, text=text, ranks=ranks)
        said = done.stdout + done.stderr
        need(done.returncode == code and saying in said, f"{done.returncode}: {said}")
        return next(line for line in said.splitlines() if saying in line)[:100]

    return on_bench


def again(bench):
    """What is there is not run again, and the command is known from its folder."""
    first, _ = check(bench, *kind(""))
    done = subprocess.run([bench.lockstep, "check", "--out", bench.path("kept")], capture_output=True, text=True, check=False)
    need(done.returncode == 0 and done.stdout == first.stdout and " s, " not in done.stderr, f"{done.stdout}{done.stderr}")
    return ""


def as_written(bench):
    """From one process and by starting every program anew: the same bits."""
    traces = []
    for words in ((), ("--as-written", "--fresh")):
        done, _ = check(bench, *words, *kind(""))
        need(done.returncode == 0, done.stdout + done.stderr)
        traces.append(open(bench.path("kept/runs/run/rank-1.trace"), "rb").read())
    need(traces[0] == traces[1], "the run's traces differ")
    return ""


READ = """
import glob, json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore
shown, written = {}, {}
for folder in glob.glob(sys.argv[1] + "/*"):
    events = EventAccumulator(folder)
    events.Reload()
    run = shown[folder.rsplit("/", 1)[1]] = {tag: [each.value for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    run.update({tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]})
for path in glob.glob(sys.argv[2] + "/wandb/offline-run-*/*.wandb"):
    store, name, history = DataStore(), "", []
    store.open_for_scan(path)
    while data := store.scan_data():
        record = Record.FromString(data)
        name = record.run.display_name or name
        if record.HasField("history"):
            history.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item})
    written[name] = history
print(json.dumps([shown, written]))
"""


def in_tools(bench):
    """Curves and verdicts as TensorBoard and W&B read them themselves; steps and collectives as a Chrome trace."""
    python = PAGE.parent.parent / ".lockstep" / "tools" / "bin" / "python"
    if not python.exists():
        return "skipped: TensorBoard and W&B are not in .lockstep/tools"
    board, wandb, trace = bench.path("board"), bench.path("wandb"), bench.path("trace.json")
    with environment(PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}"):
        done, _ = check(bench, f"--tensorboard={board}", f"--wandb={wandb}", f"--chrome-trace={trace}", *kind("times"))
    said = subprocess.run([python, "-c", READ, board, wandb], capture_output=True, text=True, check=False)
    need(done.returncode == 1 and said.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}{said.stderr}")
    shown, written = json.loads(said.stdout)
    run, first = shown["run-float64"], "norm of local gradients/"
    norms = list(zip(run[first + "rank 0"], run[first + "rank 1"]))
    need(len(norms) == 4 and "different from step 1: loss-times-world" in run["verdict"], f"{run}")
    need(all(abs(max(two) / min(two) - ratio) < 1e-5 * ratio for two, ratio in zip(norms, run[first + "largest over smallest"])), f"{run}")
    differences = run["difference from the reference/gradients"]
    need(differences[0] < 1e-12 and differences[1] > 0.9, f"{differences}")
    losses = zip(written["run-float64"], run["loss"], strict=True)
    need(set(written) == set(shown) and all(abs(step["loss"] - loss) < 1e-6 for step, loss in losses), f"{written}, {shown}")
    events = [event for event in json.load(open(trace))["traceEvents"] if event["ph"] == "X"]
    need({event["tid"] for event in events} == {0, 1} and any("all_reduce" in event["name"] for event in events), f"{events[:5]}")
    return f"{len(events)} calls"


# The page.

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "start.md"


def blocks(text, kind):
    return re.findall(rf"```{kind}\n(.*?)```\n", text, re.S)


def runs(lockstep, folder):
    """The commands, what is below each, and what it prints."""
    text = PAGE.read_text()
    pathlib.Path(folder, "train.py").write_text(blocks(text, "python")[0])
    env = dict(os.environ, PATH=os.pathsep.join([os.path.dirname(lockstep), os.path.dirname(sys.executable), os.environ["PATH"]]))
    for block in blocks(text, "console"):
        command, _, expected = block.partition("\n")
        yield command, expected, subprocess.run(command.removeprefix("$ "), shell=True, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout


def page(bench):
    loose = re.compile(r"\d(?:\.\d+)?e-\d+").split
    for command, expected, found in runs(bench.lockstep, bench.folder):
        need(loose(found) == loose(expected), f"{command}\nprints\n{found}\nand not\n{expected}")
    return ""


def write(lockstep, folder):
    text = PAGE.read_text()
    for command, expected, found in runs(lockstep, folder):
        text = text.replace(f"```console\n{command}\n{expected}```", f"```console\n{command}\n{found}```")
    PAGE.write_text(text)


CASES = [
    Case("check: DDP", right("", ranks="3", saying="mean of the ranks' gradients")),
    Case("check: no seed", right("unseeded", saying="is a seed set?")),
    Case("check: BatchNorm that is meant", right("norm", "--accept", "batch-norm-local", saying="but for BatchNorm")),
    *(Case(f"check: {name}", wrong(name)) for name in NAMES),
    *(Case(f"check: contrast, {name}", named(name, code)) for name, code in CONTRASTS.items()),
    *(Case(f"check: contrast, right {name}", named(name)) for name in ("", "all", "masked")),
    *(Case(f"check: updates, {name}", named(name, code, UPDATES)) for name, code in UPDATED.items()),
    *(Case(f"check: by hand, {name}", named(name, code, HAND)) for name, code in BY_HAND.items()),
    *(Case(f"check: the whole batch, {name}", named(name, code, LOADING)) for name, code in LOADED.items()),
    *(Case(f"check: kept, {name}", kept(name)) for name in KEPT),
    *(Case(f"check: a framework's line, {name}", lined(name, code)) for name, code in LINED.items()),
    *(Case(f"check: of one layout, {name}", of_layout(name, BY_HAND[name])) for name in ("max", "early", "evaluation")),
    Case("check: again", again),
    Case("check: every process anew", as_written),
    Case("check: without {ranks}", refused(2, "has no {ranks}", "--", "TORCHRUN", "SCRIPT")),
    Case("check: an unknown placeholder", refused(2, "unknown placeholder 'rank'", "--", "TORCHRUN", "--nproc-per-node", "{ranks}", "SCRIPT", "{rank}")),
    Case("check: rows that cannot be shared out", refused(2, "cannot be shared out", ranks="5")),
    Case("check: ranks that the command ignores", refused(3, "does the command pass {ranks} on?", "--", "TORCHRUN", "--nproc-per-node", "2", "SCRIPT", "{ranks}", text=SCRIPT.replace("args.parse_args()", "args.parse_known_args()[0]"))),
    Case("check: a rank that throws", refused(3, "ValueError: no such file: vocabulary.txt", *kind("crash"))),
    Case("check: a rank that hangs", refused(4, "rank 1", *kind("hang"))),
    Case("check: a rank that is killed", refused(3, "killed by signal 9", *kind("killed"))),
    Case("check: no optimizer", refused(7, "recorded nothing", text="import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n")),
    Case("check: in the files of other tools", in_tools),
    Case("check: the page of the first steps", page),
]
if __name__ == "__main__":
    write(*map(os.path.abspath, sys.argv[1:3]))
