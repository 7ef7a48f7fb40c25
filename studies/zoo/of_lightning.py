"""Lightning's Trainer with DDPStrategy, unmodified, on a small classifier."""

import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

from of_accelerate import BATCH, Data
from subject import Subject

LIBRARY = "lightning"


class Module(lightning.LightningModule):
    def __init__(self, run, tokens, batch_norm, sync_dist):
        super().__init__()
        torch.manual_seed(4)
        middle = [torch.nn.BatchNorm1d(16)] if batch_norm else []
        self.net = torch.nn.Sequential(torch.nn.Linear(12, 16), *middle, torch.nn.ReLU(), torch.nn.Linear(16, 3))
        self.run, self.tokens, self.sync_dist, self.probe, self.losses, self.seen = run, tokens, sync_dist, None, [], []

    def training_step(self, batch, _):
        ids, x, y, n = batch
        if self.probe is not None:
            self.probe.rows(ids, x, y)
        losses = torch.nn.functional.cross_entropy(self.net(x), y, reduction="none")
        loss = (losses * n).sum() / n.sum() if self.tokens else losses.mean()
        self.losses.append(float(loss.detach()))
        self.seen.append((losses.detach() * n, n) if self.tokens else (losses.detach(), torch.ones_like(n)))
        return loss

    def validation_step(self, batch, _):
        _, x, y, _ = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean(), sync_dist=self.sync_dist)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Tracing(lightning.Callback):
    """Two of the probe's three lines."""

    def __init__(self, run, metric):
        self.run, self.metric = run, metric

    def on_train_start(self, trainer, module):
        module.probe = self.run.attach(trainer.model, module.optimizers())

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.fit_loop._should_accumulate():
            return
        rows, counts = (torch.cat(each) for each in zip(*module.seen))
        module.probe.step(sum(module.losses) / len(module.losses), rows, counts)
        module.losses, module.seen = [], []

    def on_validation_end(self, trainer, module):
        if self.metric and module.probe is not None:
            module.probe.metric("accuracy", trainer.callback_metrics["accuracy"])


def ordered(data, run):
    """What divides the rows among the ranks in their order: Lightning's own sampler shuffles them."""
    return torch.utils.data.DistributedSampler(data, num_replicas=run.world, rank=run.rank, shuffle=False)


def fitted(run, accumulation=1, clip=None, sampler="in order", tokens=False, batch_norm=False, validate=False, sync_dist=True, rows=96, unused=False):
    module = Module(run, tokens, batch_norm, sync_dist)
    run.begin(module)
    size = BATCH // (run.world * accumulation)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=run.world, strategy=DDPStrategy(process_group_backend="gloo", find_unused_parameters=unused) if run.world > 1 else "auto",
        max_steps=run.steps, max_epochs=-1, accumulate_grad_batches=accumulation, gradient_clip_val=clip, use_distributed_sampler=sampler == "default", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, limit_val_batches=1.0 if validate else 0,
        default_root_dir=os.environ["ZOO_WORK"], callbacks=[Tracing(run, validate)] if run.traced else [])  # fmt: skip
    held_out = torch.utils.data.DataLoader(Data(22, seed=8), batch_size=4)
    data = Data(rows)
    loader = torch.utils.data.DataLoader(data, batch_size=size, sampler=ordered(data, run) if sampler == "in order" and run.world > 1 else None)
    trainer.fit(module, loader, held_out if validate else None)
    run.end(module)


ACCUMULATED = "24 rows; 3 × 4 × 2"
SUBJECTS = [
    Subject(LIBRARY, "Trainer, ddp", fitted),
    Subject(LIBRARY, "Trainer, gradient_clip_val=0.2", fitted, {"clip": 0.2}, {"clip": 0.2}),
    Subject(LIBRARY, "Trainer, accumulate_grad_batches=4", fitted, {"accumulation": 4}, layout=ACCUMULATED),
    Subject(LIBRARY, "Trainer, find_unused_parameters", fitted, {"unused": True}),
    Subject(LIBRARY, "Trainer, use_distributed_sampler=True, loader without shuffle", fitted, {"sampler": "default"}, expect=("shuffle-differs",)),
    Subject(LIBRARY, "Trainer, use_distributed_sampler=False, no sampler", fitted, {"sampler": "none"}, expect=("shards-identical",), layout="24 rows; 3 × the same 8"),
    Subject(LIBRARY, "Trainer, mean over own tokens", fitted, {"tokens": True}, {"tokens": True}, expect=("mean-of-means",), known="Lightning#6789"),
    Subject(LIBRARY, "Trainer, accumulate_grad_batches=4, mean over own tokens", fitted, {"tokens": True, "accumulation": 4}, {"tokens": True},
            expect=("micro-steps-weighted-alike", "mean-of-means"), layout=ACCUMULATED),
    Subject(LIBRARY, "Trainer, 94 rows: the sampler repeats some", fitted, {"rows": 94}, {"rows": 94}, expect=("padding-at-epoch-end", "sample-duplicated"), step=3,
            layout="24, 24, 24, 22 rows; 3 × 8"),
    Subject(LIBRARY, "Trainer, sync_batchnorm=False", fitted, {"batch_norm": True}, {"batch_norm": True}, expect=("batch-norm-local", "buffers-not-synchronised")),
]  # fmt: skip
