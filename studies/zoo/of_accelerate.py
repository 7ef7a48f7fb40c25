"""Loops with Accelerate's `prepare`, `accumulate` and `gather_for_metrics`, on a small classifier."""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration

from subject import TEN, THREE, ZERO, Subject

LIBRARY = "accelerate"
BATCH = 24


class Data(torch.utils.data.Dataset):
    def __init__(self, rows, seed=7):
        draw = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, 12, generator=draw)
        self.y = (self.x[:, :3] * 2 + 0.3 * torch.randn(rows, 3, generator=draw)).argmax(1)
        # Tokens that count: some rows have many.
        self.n = torch.randint(1, 4, (rows,), generator=draw) + 9 * (torch.arange(rows) % 4 == 0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i], self.n[i]


def net():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def loop(run, rows=96, split=False, dispatch=False, even=True, accumulation=1, schedule=False, tokens=False, metric="", clip=0.0):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation, dataloader_config=DataLoaderConfiguration(
        split_batches=split, dispatch_batches=dispatch, even_batches=even))  # fmt: skip
    data, held_out = Data(rows), Data(22, seed=8)
    size = BATCH // accumulation if split else BATCH // (run.world * accumulation)
    model = run.begin(net())
    bare = model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + 0.1 * n) if schedule else 1.0)
    loader = torch.utils.data.DataLoader(data, batch_size=size)
    measured = torch.utils.data.DataLoader(held_out, batch_size=9)
    model, optimizer, loader, measured, scheduler = accelerator.prepare(model, optimizer, loader, measured, scheduler)
    probe = run.attach(model, optimizer)

    def loss_of(model, x, y, n, seen=None):
        losses = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
        if seen is not None:
            seen.append((losses.detach() * n, n) if tokens else (losses.detach(), torch.ones_like(n)))
        return (losses * n).sum() / n.sum() if tokens else losses.mean()

    def step_on(model, ids):
        loss = loss_of(model, data.x[ids], data.y[ids], data.n[ids])
        loss.backward()
        return loss

    if run.lines == TEN:
        probe.replay(step_on)
    step, losses, seen = 0, [], []
    while step < run.steps:
        for ids, x, y, n in loader:
            with accelerator.accumulate(model):
                probe.rows(ids, x, y)
                loss = loss_of(model, x, y, n, seen)
                losses.append(float(loss.detach()))
                accelerator.backward(loss)
                if clip and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                probe.step(sum(losses) / len(losses), torch.cat([each[0] for each in seen]), torch.cat([each[1] for each in seen]))
                losses, seen, step = [], [], step + 1
                if metric:
                    hits, of_rows = measured_hits(accelerator, model, measured, metric)
                    if accelerator.is_main_process:
                        probe.metric("accuracy", hits.mean())
                        probe.metric("hits", hits, ids=of_rows)
                if step == run.steps:
                    break
    run.end(bare)


def measured_hits(accelerator, model, loader, how):
    """Of each held-out row whether its class is found, and the rows' ids, from all ranks."""
    found = []
    model.eval()
    with torch.no_grad():
        for ids, x, y, _ in loader:
            found.append(getattr(accelerator, how)(((model(x).argmax(1) == y).float(), ids)))
    model.train()
    return tuple(torch.cat(each) for each in zip(*found))


ALL = (ZERO, THREE, TEN)
SUBJECTS = [
    Subject(LIBRARY, "loop", loop, {"clip": 0.2}, {"clip": 0.2}, lines=ALL),
    Subject(LIBRARY, "loop, split_batches", loop, {"split": True, "schedule": True}, {"split": True, "schedule": True}),
    Subject(LIBRARY, "loop, dispatch_batches", loop, {"dispatch": True}, {}),
    Subject(LIBRARY, "loop, accumulate() × 4", loop, {"accumulation": 4}, {}, layout="24 rows; 3 × 4 × 2"),
    Subject(LIBRARY, "loop, lr scheduler stepped with the optimizer", loop, {"schedule": True}, {"schedule": True}, expect=("scheduler-stepped-per-rank",), step=1,
            known="accelerate#2142"),
    Subject(LIBRARY, "loop, 70 rows, even_batches", loop, {"rows": 70, "split": True}, {"rows": 70, "split": True},
            expect=("padding-at-epoch-end", "sample-duplicated"), step=2, layout="24, 24, 22 rows; 3 × 8, last 8, 8, 8"),
    Subject(LIBRARY, "loop, 70 rows, even_batches=False", loop, {"rows": 70, "split": True, "even": False}, {"rows": 70, "split": True},
            expect=("mean-of-means",), step=2, layout="24, 24, 22 rows; 3 × 8, last 8, 8, 6", lines=ALL),
    Subject(LIBRARY, "loop, mean over own tokens", loop, {"tokens": True}, {"tokens": True}, expect=("mean-of-means",), lines=ALL),
    Subject(LIBRARY, "loop, accumulate() × 4, mean over own tokens", loop, {"accumulation": 4, "tokens": True}, {"tokens": True},
            expect=("micro-steps-weighted-alike", "mean-of-means"), layout="24 rows; 3 × 4 × 2"),
    Subject(LIBRARY, "loop, gather_for_metrics", loop, {"metric": "gather_for_metrics"}, {"metric": "gather_for_metrics"}, lines=(THREE,)),
    Subject(LIBRARY, "loop, gather instead of gather_for_metrics", loop, {"metric": "gather"}, {"metric": "gather"}, lines=(THREE,),
            expect=("evaluated-samples-differ",)),
]  # fmt: skip
