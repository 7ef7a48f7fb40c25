"""Programs without a line for the probe, led by a run of one process: they have its gradients at each step, in float64 to the last digits. What check.py
does not reach: other wrappers, numbers and rows, and what a run cannot be led in."""

import torch

from case import Case, need
from lockstep_probe import float64, led, ownership

EXACT, STEPS = 1e-12, 4
SCRIPT = """
import os
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
data = TensorDataset(torch.randn(120, 6), torch.randint(0, 3, (120,)))
net = nn.Sequential(nn.Linear(6, 9, bias=False), nn.LayerNorm(9), nn.Dropout(0.1), nn.Tanh(), nn.Linear(9, 3))
MODEL
micros = MICROS
sampler = DistributedSampler(data, seed=5)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
step = 0
for number, (x, y) in enumerate(DataLoader(data, batch_size=12 // world // micros, sampler=sampler)):
    loss = F.cross_entropy(model(x).float(), y)
    (loss / micros).backward()
    if (number + 1) % micros:
        continue
    if CLIP:
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    step += 1
    assert step <= 4, "the program goes on"
"""
OPTIMIZER = "optimizer = torch.optim.AdamW({}.parameters(), lr=0.01)"
DDP = "model = nn.parallel.DistributedDataParallel(net)"
MODELS = {
    "model first": f"{OPTIMIZER.format('net')}\n{DDP}",
    "wrapper first": f"{DDP}\n{OPTIMIZER.format('model')}",
    "zero": "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
            f"optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=0.01)\n{DDP}",
    "fsdp2": f"from torch.distributed.fsdp import fully_shard\nmodel = fully_shard(net)\n{OPTIMIZER.format('model')}",
}


def script(model="model first", micros=1, clip=0):
    return SCRIPT.replace("MODEL", MODELS[model]).replace("MICROS", str(micros)).replace("CLIP", str(clip))


def run(bench, name, text, world, **variables):
    """A short run; its folder, and what the ranks said."""
    return bench.script(text, world, name, LOCKSTEP_STEPS=str(STEPS), LOCKSTEP_DROPOUT="off", **variables)


def facts_of(folder):
    return ownership.facts_of(folder, 0)


def both(bench, right, text):
    """A reference in float64, which nothing leads, and its twin: two folders."""
    wide = {"LOCKSTEP_PRECISION": "float64"}
    reference, _ = run(bench, "reference", right, 1, **wide)
    twin, said = run(bench, "twin", text, 2, LOCKSTEP_LED_BY=reference, **wide)
    facts = facts_of(twin)
    need(facts["led"]["steps"] == list(range(STEPS)) and facts["narrow"] == {"operations": [], "gradients": {}}, f"{facts['led']}, {facts['narrow']}: {said}")
    need(not facts["led"]["begins"]["differ"] and facts["led"]["begins"]["compared"] >= 3, f"its own start: {facts['led']['begins']}")
    return reference, twin


def tensors(folder, phase):
    """By step and name, put together of all ranks' parts."""
    return dict(led.snapshots(folder, phase))


def distances(a, b, phase):
    """Of all tensors together, relative to the reference's, step by step."""
    found, (ours, theirs) = [], (tensors(a, phase), tensors(b, phase))
    for step in range(STEPS):
        need(set(ours[step]) == set(theirs[step]) and ours[step], f"{phase} of step {step}: {sorted(set(ours[step]) ^ set(theirs[step]))}")
        pairs = [(ours[step][name].double().flatten(), theirs[step][name].double().flatten()) for name in ours[step]]
        off, size = (torch.cat(each) for each in zip(*((x - y, x) for x, y in pairs)))
        found.append(float(off.norm() / size.norm()))
    return found


def check(**options):
    def on_bench(bench):
        reference, twin = both(bench, script(**options), script(**options))
        need(max(distances(reference, twin, "snapshot")) == 0, "steps begin with other weights than the reference's")
        found = {phase: max(distances(reference, twin, phase)) for phase in ("reduced gradients", "applied gradients", "parameters")}
        need(max(found.values()) <= EXACT, f"{found}")
        return ""

    return on_bench


def few_digits(_bench):
    """What is nothing but rounding has no digits to lose."""
    alone = [("all", torch.tensor([0.1] * 9, dtype=torch.float64)), ("rounding", torch.full((9,), 1.1, dtype=torch.float32).double() * 2**-60)]
    need(float64.few_digits(iter(alone)) == [] and float64.few_digits(iter([("cut", alone[1][1])])) == ["cut"], "what is nothing but rounding")
    return ""


def in_bfloat16(bench):
    """A run begins each step with the reference's weights, rounded; counters and flags are its own."""
    text = script().replace("nn.LayerNorm(9)", "nn.BatchNorm1d(9)").replace("model = nn", "net.register_buffer('flag', torch.tensor([True, False]))\nmodel = nn")
    text = text.replace("model(x)", "model(x.to(net[0].weight.dtype))")
    first, _ = run(bench, "reference in float64", text, 1, LOCKSTEP_PRECISION="float64")
    twin, said = run(bench, "in bfloat16", text.replace("model = nn", "net.bfloat16()\nmodel = nn"), 1, LOCKSTEP_LED_BY=first)
    counted = [{k: v for k, v in each.items() if "num_batches" in k or "flag" in k} for each in (tensors(twin, "snapshot")[2], tensors(first, "snapshot")[2])]
    need(len(counted[0]) == 2 and str(counted[0]) == str(counted[1]), f"{counted}")
    need(max(distances(first, twin, "snapshot")) <= 4e-3, f"it does not begin as the reference: {said}")
    differ = facts_of(twin)["led"]["begins"]["differ"]
    need(all(each < 1e-2 for each in differ.values()), f"its own start: {differ}")
    return ""


def another_model(bench):
    """What does not fit is named, and the run goes on by itself."""
    first, _ = run(bench, "reference", script(), 1)
    twin, said = run(bench, "twin", script().replace("9, 3", "9, 4"), 2, LOCKSTEP_LED_BY=first)
    facts = facts_of(twin)
    need("4.weight has shape [4, 9] here and [3, 9] there" in facts["led"]["problem"] and "not led by" in said and not facts["led"]["steps"], f"{facts['led']}")
    return ""


def goes_on(bench):
    """A program that catches SystemExit is ended at its next update, after what it has registered for its end."""
    text = script().replace("step = 0\nfor", "step = 0\nimport atexit\natexit._clear()\natexit.register(print, 'at its end', flush=True)\nfor").replace("    optimizer.step()", "    try:\n        optimizer.step()\n    except SystemExit:\n        pass")
    folder, said = run(bench, "goes on", text.replace("step <= 4", "step <= 5"), 2)
    need(said.count("it is ended here") == said.count("at its end") == 2 and facts_of(folder)["done"], f"said: {said}")
    text = text.replace("        pass", "        import time\n        time.sleep(200)").replace("step = 0\nimport", "step = 0\nfrom lockstep_probe import probe\nprobe.GRACE_S = 1\nimport")
    folder, said = run(bench, "waits", text, 1)
    need("it is ended here" in said and facts_of(folder)["done"], f"said: {said}")
    return ""


def samples(bench):
    """Each rank, with a seed of its own, trains on what it draws from the model: rows draw what they draw in one process."""
    text = script().replace("for number,", "torch.manual_seed(rank)\nfor number,").replace("    loss = F", "    with torch.no_grad():\n        y = torch.multinomial(net(x).softmax(-1), 1)[:, 0]\n    loss = F")
    reference, twin = both(bench, text, text)
    found = distances(reference, twin, "reduced gradients")
    need(max(found) <= EXACT, f"{found}")
    need(facts_of(twin)["generated"] == list(range(STEPS)) and facts_of(reference)["generated"] == list(range(STEPS)), f"{facts_of(twin)['generated']}")
    return ""


def few_bytes(bench):
    """Of the steps that are asked for the first ones and the last, as many as there is room for; the twin is led at these."""
    text = script()
    most = {"LOCKSTEP_MOST_BYTES": "12000"}
    first, said = run(bench, "reference", text, 1, **most)
    twin, _ = run(bench, "twin", text, 2, LOCKSTEP_LED_BY=first, **most)
    kept = facts_of(first)["steps_kept"]
    need(kept == [0, 1, 3] and sorted(step for step in tensors(first, "snapshot") if step >= 0) == kept and facts_of(twin)["led"]["steps"] == kept, f"{kept}: {said}")
    need("do not fit in 0.012 MB" in said, said)
    none, said = run(bench, "none", text, 1, LOCKSTEP_MOST_BYTES="9")
    need(facts_of(none)["steps_kept"] == [] and "no values are kept" in said, said)
    return ""


def lost_moments(bench):
    """An optimizer that begins anew moves the parameters of that step elsewhere; no other step's gradients."""
    reference, twin = both(bench, script(), script().replace("    optimizer.step()", "    if world > 1 and step == 2:\n        optimizer.state.clear()\n    optimizer.step()"))
    found = distances(reference, twin, "parameters")
    need(max(distances(reference, twin, "reduced gradients")) <= EXACT and max(found[:2]) <= EXACT and found[2] > 1e-3, f"parameters: {found}")
    return ""


def without_numbers(bench):
    text = script().replace("DataLoader(data, batch_size=12 // world // micros, sampler=sampler)",
                            "[data[[(12 * k + row) % 120 for row in range(rank, 12, world)]] for k in range(9)]")
    text = text.replace("number, (x, y) in enumerate([", "number, (x, y) in enumerate(iter([").replace("range(9)])", "range(9)]))")
    stream = text.replace("iter([", "Stream([").replace("step = 0", "class Stream(torch.utils.data.IterableDataset):\n    def __init__(self, rows):\n"
                          "        self.rows = rows\n    def __iter__(self):\n        return iter(self.rows)\nstep = 0")  # fmt: skip
    stream = stream.replace("enumerate(Stream([", "enumerate(DataLoader(Stream([").replace("range(9)]))", "range(9)]), batch_size=None))")
    native, _ = run(bench, "reference", stream, 1)
    twin, said = run(bench, "twin", stream, 2, LOCKSTEP_LED_BY=native)
    need("rows without numbers (an IterableDataset" in said, f"said: {said}")
    need(max(distances(native, twin, "reduced gradients")) < 1e-6, "its own rows are the reference's, and the gradients differ")
    return ""


CASES = [
    Case("led: DDP, the optimizer after it, clipped", check(model="wrapper first", clip=0.3)),
    Case("led: DDP, accumulation", check(micros=3)),
    Case("led: FSDP2, clipped", check(model="fsdp2", clip=0.3)),
    Case("led: ZeroRedundancyOptimizer", check(model="zero")),
    Case("led: few digits", few_digits),
    Case("led: moments that are lost", lost_moments),
    Case("led: in bfloat16", in_bfloat16),
    Case("led: another model", another_model),
    Case("led: a program that goes on after its end", goes_on),
    Case("led: steps that do not fit", few_bytes),
    Case("led: samples of the model's own", samples),
    Case("led: rows without numbers", without_numbers),
]
