"""Loops with Accelerate's `prepare` and `accumulate`, on a small classifier."""

import lockstep_probe
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration

from subject import RANK, STEPS, WORLD, Subject, main

BATCH = 24


class Data(torch.utils.data.Dataset):
    def __init__(self, rows):
        draw = torch.Generator().manual_seed(7)
        self.x = torch.randn(rows, 12, generator=draw)
        self.y = (self.x[:, :3] * 2 + 0.3 * torch.randn(rows, 3, generator=draw)).argmax(1)
        # Tokens that count: some rows have many.
        self.n = torch.randint(1, 4, (rows,), generator=draw) + 9 * (torch.arange(rows) % 4 == 0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.n[i]


def net():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def loop(rows=96, split=False, dispatch=False, even=True, accumulation=1, schedule=False, tokens=False, clip=0.0, line=False, left_out=False):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation, dataloader_config=DataLoaderConfiguration(
        split_batches=split, dispatch_batches=dispatch, even_batches=even))  # fmt: skip
    if line:
        accelerator = lockstep_probe.accelerate.watch(accelerator)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + 0.1 * n) if schedule else 1.0)
    loader = torch.utils.data.DataLoader(Data(rows), batch_size=BATCH // accumulation if split else BATCH // (WORLD * accumulation))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for _ in range(STEPS):
        for x, y, n in loader:
            with accelerator.accumulate(model):
                losses = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
                if left_out and RANK == WORLD - 1:
                    losses = losses * (torch.arange(len(losses)) < len(losses) - 1)
                accelerator.backward((losses * n).sum() / n.sum() if tokens else losses.mean())
                if clip and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


SUBJECTS = [
    Subject("loop", loop, {"clip": 0.2}, {"clip": 0.2}),
    Subject("loop, split_batches", loop, {"split": True, "schedule": True}, {"split": True, "schedule": True}),
    Subject("loop, dispatch_batches", loop, {"dispatch": True}),
    Subject("loop, accumulate() × 4", loop, {"accumulation": 4}),
    Subject("loop, lr scheduler stepped with the optimizer", loop, {"schedule": True}, {"schedule": True}, ("scheduler-stepped-per-rank",), 1, "accelerate#2142"),
    Subject("loop, 70 rows, even_batches", loop, {"rows": 70, "split": True}, {"rows": 70, "split": True}, ("padding-at-epoch-end", "sample-duplicated"), 2),
    Subject("loop, 70 rows, even_batches=False", loop, {"rows": 70, "split": True, "even": False}, {"rows": 70, "split": True}, ("mean-of-means",), 2),
    Subject("loop, mean over own tokens", loop, {"tokens": True}, {"tokens": True}, ("mean-of-means",)),
    Subject("loop, accumulate() × 4, mean over own tokens", loop, {"accumulation": 4, "tokens": True}, {"tokens": True},
            ("micro-steps-weighted-alike", "mean-of-means")),
    Subject("loop with the probe's line, accumulate() × 4", loop, {"line": True, "accumulation": 4}, {"line": True}),
    Subject("loop with the probe's line, mean over own tokens", loop, {"line": True, "tokens": True}, {"line": True, "tokens": True}, ("mean-of-means",)),
    Subject("loop with the probe's line, one row left out of the loss", loop, {"line": True, "left_out": True}, {"line": True}, ("rows-left-out",)),
]  # fmt: skip
if __name__ == "__main__":
    main(SUBJECTS)
