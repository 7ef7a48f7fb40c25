"""DDP with TORCH_DISTRIBUTED_DEBUG=DETAIL, and the loss curves that people lay over one another."""

import functools
import math
import os
import re

import torch.distributed as dist

import ranks
from answer import found, silent
from twin import Trainer

STEPS, SEEDS, SMOOTH, SHARE = 40, (5, 6, 7), 5, 0.01
DIED = "the ranks die without a word"


def documented_setting():
    """DETAIL as its page says, from the first line on: what comes of it, of one step on two ranks."""
    from faults import ENERGY

    settings = ENERGY.but(world=2, steps=1)
    answers, logs = ranks.run(2, lambda rank: Trainer(settings, rank).train(), {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    if all(answers):
        return "trains"
    return logs[0].strip().splitlines()[-1] if "".join(logs).strip() else DIED


def curve(settings, fault=None, detail=True):
    """The mean over ranks of the logged losses, and an error's last line with the step in which it came."""

    def work(rank):
        group = None
        if settings.world > 1 and detail:
            # DDP's constructor dies under DETAIL with Gloo's wrapped group: it gets one that is not wrapped.
            os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
            dist.set_debug_level(dist.DebugLevel.INFO)
            group = dist.new_group()
        trainer = Trainer(settings, rank, fault, group=group)
        if group is not None:
            os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
            dist.set_debug_level(dist.DebugLevel.DETAIL)
        try:
            return trainer.train()
        finally:
            print(f"\nlast step {trainer.step}", flush=True)

    environment = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if settings.world > 1 and detail else None
    answers, logs = ranks.run(settings.world, work, environment)
    if any(a is None for a in answers):
        steps = [int(m) for log in logs for m in re.findall(r"last step (-?\d+)", log)]
        lines = [line for log in logs for line in log.splitlines() if re.match(r"\w*(Error|Exception)\b", line.strip())]
        return None, (min(steps, default=None), lines[0] if lines else DIED)
    return [sum(a[k] for a in answers) / len(answers) for k in range(settings.steps)], None


def smoothed(values):
    windows = [values[max(0, k - SMOOTH + 1) : k + 1] for k in range(len(values))]
    return [sum(w) / len(w) for w in windows]


class Curves:
    """`by_seeds`: beyond the scatter of three seeds, or any error of DETAIL; else 1 % from the curve of the same seed."""

    package, layout = "torch", "8x3"

    def __init__(self, by_seeds, kept):
        self.by_seeds, self.kept = by_seeds, kept
        self.name = "detail_curves" if by_seeds else "same_seed_curve"
        self.title = "DETAIL + loss curves" if by_seeds else "loss curve, same seed"
        if by_seeds:
            self.asked = (
                f"`TORCH_DISTRIBUTED_DEBUG=DETAIL`, {STEPS} steps on 8x3, and the mean of the ranks' losses over {SMOOTH} steps "
                "beside that of 1x24. Found: an error of DDP or c10d, a loss that is not finite, or a distance from the 1x24 "
                "curve of the same seed beyond the largest distance between the clean 1x24 curves of three seeds at that step"
            )
        else:
            self.asked = (
                f"the same {STEPS} losses against those of 1x24 with the same seed. Found: a step at which they differ "
                f"by more than {SHARE:.0%}, which a reader of two curves can see"
            )
        self.cannot_be_asked = "place and cause, as a curve has a step but no name"
        if by_seeds:
            self.cannot_be_asked += "; DETAIL checks collectives, not values"

    def notes(self):
        return {"as documented": documented_setting()} if self.by_seeds else {}

    def _curve(self, settings, fault=None):
        key = (settings, fault.name if fault else "")
        if key not in self.kept:
            self.kept[key] = curve(settings.but(steps=STEPS), fault)
        return self.kept[key]

    def _judge(self, settings, fault=None):
        losses, error = self._curve(settings.but(world=settings.world), fault)
        if error:
            return found(error[0], error[1]) if self.by_seeds else found(error[0], "the run ends")
        reference = self._curve(settings.but(world=1))[0]
        bad = next((k for k, x in enumerate(losses) if not math.isfinite(x)), None)
        if bad is not None:
            return found(bad, "the loss is not finite")
        if not self.by_seeds:
            step = next((k for k, (a, b) in enumerate(zip(losses, reference)) if abs(a - b) > SHARE * abs(b)), None)
        else:
            clean = [smoothed(self._curve(settings.but(world=1, seed=seed))[0]) for seed in SEEDS]
            pairs = zip(smoothed(losses), smoothed(reference), *clean)
            step = next((k for k, (a, b, *c) in enumerate(pairs) if abs(a - b) > max(c) - min(c)), None)
        far = max(abs(a - b) / abs(b) for a, b in zip(losses, reference))
        words = f"largest distance {far:.3%} of the loss"
        return silent(words) if step is None else found(step, words)

    def clean(self, workloads, seeds=SEEDS):
        for workload, settings in workloads.items():
            for seed in seeds:
                for world in (8, 4, 2) if seed == seeds[0] else (8,):
                    name = f"{workload} {world}x{24 // world}, seed {seed}"
                    yield name, functools.partial(self._judge, settings.but(seed=seed, world=world))

    def fault(self, fault):
        return self._judge(fault.settings.but(world=8), fault)
