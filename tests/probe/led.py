"""Programs without a line for the probe, led by a run of one process: right ones have its gradients at each step, in float64 to the last digits; wrong
ones differ at the step of their mistake."""

import contextlib
import json
import os

import torch

from case import Case, need
from lockstep_probe import float64, led, trace_file, zero

EXACT, STEPS = 1e-12, 4
SCRIPT = """
import os
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
data = TensorDataset(torch.randn(120, 6), torch.randint(0, 3, (120,)))
net = nn.Sequential(nn.Linear(6, 9, bias=False), NORM, nn.Dropout(0.1), nn.Tanh(), nn.Linear(9, 3))
MODEL
micros, wrong = MICROS, WRONG
sampler = DistributedSampler(data, seed=5) if not wrong == "sampler" else RandomSampler(data, generator=torch.Generator().manual_seed(rank))
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
step = 0
for number, (x, y) in enumerate(DataLoader(data, batch_size=12 // world // micros, sampler=sampler)):
    made = model.module if wrong == "unsynchronised" and step == 2 else model
    loss = F.cross_entropy(made(x).float(), y, reduction="sum" if wrong == "sum" and step >= 1 else "mean")
    (loss / (1 if wrong == "accumulation" else micros)).backward()
    if (number + 1) % micros:
        continue
    if CLIP:
        nn.utils.clip_grad_norm_(net.parameters(), 0.1 if wrong == "clip" and world > 1 else CLIP)
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


def script(model="model first", norm="nn.LayerNorm(9)", micros=1, clip=0, wrong=""):
    text = SCRIPT.replace("MODEL", MODELS[model]).replace("NORM", norm)
    return text.replace("MICROS", str(micros)).replace("CLIP", str(clip)).replace("WRONG", repr(wrong))


def run(bench, name, text, world, **variables):
    """A short run; its folder, and what the ranks said."""
    folder = bench.path(name + "/traces")

    def program(rank):
        os.environ.update(LOCKSTEP_TRACE=folder, LOCKSTEP_STEPS=str(STEPS), LOCKSTEP_DROPOUT="off", RANK=str(rank.rank), WORLD_SIZE=str(world), **variables)
        zero.arm()
        with contextlib.suppress(SystemExit):
            exec(compile(text, "train.py", "exec"), {})  # noqa: S102
            raise AssertionError("the program came to its own end")

    return folder, "".join(bench.run(program, world, name))


def facts_of(folder, rank=0):
    return json.loads(open(f"{folder}/rank-{rank}.probe.json").read())


def both(bench, right, text, world=2, **variables):
    """A reference in float64, which nothing leads, and its twin: two folders. With `variables` the reference once more, with these."""
    wide = {"LOCKSTEP_PRECISION": "float64"}
    first, _ = run(bench, "reference", right, 1, **wide)
    reference = run(bench, "reference again", right, 1, LOCKSTEP_LED_BY=first, **wide, **variables)[0] if variables else first
    twin, said = run(bench, "twin", text, world, LOCKSTEP_LED_BY=first, **wide)
    facts = facts_of(twin)
    need(facts["led"]["steps"] == list(range(STEPS)) and facts["narrow"] == {"operations": [], "gradients": {}}, f"{facts['led']}, {facts['narrow']}: {said}")
    need(not facts["led"]["begins"]["differ"] and facts["led"]["begins"]["compared"] >= 3, f"its own start: {facts['led']['begins']}")
    return reference, twin


def tensors(folder, phase):
    """By step and name, put together of all ranks' parts."""
    world = trace_file.header_of(f"{folder}/rank-0.trace")["world_size"]
    found = {}
    for ranks in zip(*(trace_file.read_steps(f"{folder}/rank-{rank}.trace") for rank in range(world))):
        for record in (r for _, records in ranks for r in records if r.phase == trace_file.PHASES[phase] and r.values is not None):
            found.setdefault(ranks[0][0], {}).setdefault(record.name, []).append(record)
    return {step: {name: led.whole(parts) for name, parts in by_name.items()} for step, by_name in found.items()}


def distances(a, b, phase):
    """Of all tensors together, relative to the reference's, step by step."""
    found, (ours, theirs) = [], (tensors(a, phase), tensors(b, phase))
    for step in range(STEPS):
        need(set(ours[step]) == set(theirs[step]) and ours[step], f"{phase} of step {step}: {sorted(set(ours[step]) ^ set(theirs[step]))}")
        pairs = [(ours[step][name].double().flatten(), theirs[step][name].double().flatten()) for name in ours[step]]
        off, size = (torch.cat(each) for each in zip(*((x - y, x) for x, y in pairs)))
        found.append(float(off.norm() / size.norm()))
    return found


def check(wrong="", begins=0, seen_in="reduced gradients", parts=1, **options):
    def on_bench(bench):
        variables = {"LOCKSTEP_NORM_PARTS": str(parts)} if parts > 1 else {}
        reference, twin = both(bench, script(**options), script(wrong=wrong, **options), **variables)
        need(max(distances(reference, twin, "snapshot")) == 0, "steps begin with other weights than the reference's")
        found = distances(reference, twin, seen_in)
        right, off = found[:begins] if wrong else found, found[begins:] if wrong else []
        need(max(right, default=0) <= EXACT and min(off, default=1) > 1e-3, f"{seen_in}: {found}")
        if not wrong:
            need(max(distances(reference, twin, "applied gradients")) <= EXACT and max(distances(reference, twin, "parameters")) <= EXACT, "the update differs")
        return " ".join(f"{each:.0e}" for each in found)

    return on_bench


def unsynchronised(bench):
    """In the one step alone."""
    reference, twin = both(bench, script(), script(wrong="unsynchronised"))
    found = distances(reference, twin, "reduced gradients")
    need(max(found[:2] + found[3:]) <= EXACT and found[2] > 1e-3, f"found {found}")
    return ""


def by_statistics(bench):
    """Each rank's own: the difference is there, and is not where the reference takes its statistics from parts of the batch too."""
    reference, twin = both(bench, script(norm="nn.BatchNorm1d(9)"), script(norm="nn.BatchNorm1d(9)"))
    found = distances(reference, twin, "reduced gradients")
    need(min(found) > 1e-3, f"found {found}")
    alone = [("all", torch.tensor([0.1] * 9, dtype=torch.float64)), ("rounding", torch.full((9,), 1.1, dtype=torch.float32).double() * 2**-60)]
    need(float64.few_digits(iter(alone)) == [] and float64.few_digits(iter([("cut", alone[1][1])])) == ["cut"], "what is nothing but rounding")
    return ""


def rows_apart(bench):
    """A twin that does not share its data out gets the reference's rows; what it asked for is kept."""
    reference, twin = both(bench, script(), script(wrong="sampler"))
    need(max(distances(reference, twin, "reduced gradients")) <= EXACT, "with the reference's rows the gradients differ")
    asked = [json.loads(open(f"{twin}/rank-{rank}.rows.json").read())["loaders"][0] for rank in range(2)]
    there = json.loads(open(f"{reference}/rank-0.rows.json").read())["loaders"][0]
    step = [sorted(row for each in asked for row in each[what][0]) for what in ("asked", "given")]
    need(step[1] == sorted(there["asked"][0]) and step[0] != step[1] and asked[0]["rows"] == 120, f"rows of step 0: {step}, the reference's {there}")
    return ""


def in_its_own_precision(bench):
    """Both runs are led by the one in float64: they begin each step with its weights, rounded; counters and flags are its own."""
    text = script(norm="nn.BatchNorm1d(9)").replace("model = nn", "net.register_buffer('flag', torch.tensor([True, False]))\nmodel = nn")
    text = text.replace("made(x)", "made(x.to(net[0].weight.dtype))")
    first, _ = run(bench, "reference in float64", text, 1, LOCKSTEP_PRECISION="float64")
    native, _ = run(bench, "reference", text, 1, LOCKSTEP_LED_BY=first)
    for name, kind in (("twin", text), ("in bfloat16", text.replace("model = nn", "net.bfloat16()\nmodel = nn"))):
        twin, said = run(bench, name, kind, 1 if name == "in bfloat16" else 2, LOCKSTEP_LED_BY=first)
        counted = [{k: v for k, v in each.items() if "num_batches" in k or "flag" in k} for each in (tensors(twin, "snapshot")[2], tensors(first, "snapshot")[2])]
        need(len(counted[0]) == 2 and str(counted[0]) == str(counted[1]), f"{name}: {counted}")
        need(max(distances(native, twin, "snapshot")) <= (0 if name == "twin" else 4e-3), f"{name} does not begin as the reference: {said}")
        differ = facts_of(twin)["led"]["begins"]["differ"]
        need(all(each < 1e-2 for each in differ.values()), f"{name}, own start: {differ}")
    return ""


def another_model(bench):
    """What does not fit is named, and the run goes on by itself; another start of the same model is said, and led."""
    first, _ = run(bench, "reference", script(), 1)
    twin, said = run(bench, "twin", script().replace("9, 3", "9, 4"), 2, LOCKSTEP_LED_BY=first)
    facts = facts_of(twin)
    need("4.weight has shape [4, 9] here and [3, 9] there" in facts["led"]["problem"] and "not led by" in said and not facts["led"]["steps"], f"{facts['led']}")
    twin, said = run(bench, "another start", script().replace("net = nn", "torch.manual_seed(rank + 3)\nnet = nn"), 2, LOCKSTEP_LED_BY=first)
    led_ = facts_of(twin)["led"]
    need(min(led_["begins"]["differ"].values()) > 0.1 and len(led_["begins"]["differ"]) >= 3 and led_["steps"] == list(range(STEPS)), f"{led_}")
    need(max(distances(first, twin, "reduced gradients")) < 1e-6, "it is led, and the gradients differ")
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
    text = script().replace("for number,", "torch.manual_seed(rank)\nfor number,").replace("    made = model.module", "    with torch.no_grad():\n        y = torch.multinomial(net(x).softmax(-1), 1)[:, 0]\n    made = model.module")
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
    Case("led: DDP, the optimizer before it", check()),
    Case("led: DDP, the optimizer after it, clipped", check(model="wrapper first", clip=0.3)),
    Case("led: DDP, accumulation", check(micros=3)),
    Case("led: FSDP2, clipped", check(model="fsdp2", clip=0.3)),
    Case("led: ZeroRedundancyOptimizer", check(model="zero")),
    Case("led: BatchNorm, by parts of the batch", check(norm="nn.BatchNorm1d(9)", parts=2)),
    Case("led: BatchNorm, by the whole batch", by_statistics),
    Case("led: a sum for a mean from step 1 on", check("sum", 1)),
    Case("led: a sum for a mean that clipping hides", check("sum", 1, clip=0.3)),
    Case("led: another limit of clipping", check("clip", seen_in="applied gradients", clip=0.3)),
    Case("led: accumulation that does not divide", check("accumulation", micros=3)),
    Case("led: moments that are lost", lost_moments),
    Case("led: a step that is not synchronised", unsynchronised),
    Case("led: rows that are not shared out", rows_apart),
    Case("led: in the program's precision", in_its_own_precision),
    Case("led: another model, and another start", another_model),
    Case("led: a program that goes on after its end", goes_on),
    Case("led: steps that do not fit", few_bytes),
    Case("led: samples of the model's own", samples),
    Case("led: rows without numbers", without_numbers),
]
