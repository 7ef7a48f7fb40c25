"""Lightning's Trainer with DDPStrategy, on a small classifier."""

import tempfile

import lightning
import lockstep_probe
import torch
from lightning.pytorch.strategies import DDPStrategy

from of_accelerate import BATCH, Data
from subject import RANK, STEPS, WORLD, Subject, main


class Module(lightning.LightningModule):
    def __init__(self, tokens, batch_norm, left_out):
        super().__init__()
        torch.manual_seed(4)
        middle = [torch.nn.BatchNorm1d(16)] if batch_norm else []
        self.net = torch.nn.Sequential(torch.nn.Linear(12, 16), *middle, torch.nn.ReLU(), torch.nn.Linear(16, 3))
        self.tokens, self.left_out = tokens, left_out

    def training_step(self, batch, _):
        x, y, n = batch
        losses = torch.nn.functional.cross_entropy(self.net(x), y, reduction="none")
        if self.left_out and RANK == WORLD - 1:
            return losses[:-1].sum() / len(losses)
        return (losses * n).sum() / n.sum() if self.tokens else losses.mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def ordered(data):
    """What divides the rows among the ranks in their order: Lightning's own sampler shuffles them."""
    return torch.utils.data.DistributedSampler(data, num_replicas=WORLD, rank=RANK, shuffle=False)


def fitted(accumulation=1, clip=None, sampler="in order", tokens=False, batch_norm=False, rows=96, unused=False, line=False, left_out=False):
    trainer = lightning.Trainer(
        accelerator="cpu", devices=WORLD, strategy=DDPStrategy(process_group_backend="gloo", find_unused_parameters=unused) if WORLD > 1 else "auto",
        max_steps=STEPS, accumulate_grad_batches=accumulation, gradient_clip_val=clip, use_distributed_sampler=sampler == "default", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tempfile.gettempdir(),
        callbacks=[lockstep_probe.lightning.Callback()] if line else [])  # fmt: skip
    data = Data(rows)
    trainer.fit(Module(tokens, batch_norm, left_out), torch.utils.data.DataLoader(
        data, batch_size=BATCH // (WORLD * accumulation), sampler=ordered(data) if sampler == "in order" and WORLD > 1 else None))  # fmt: skip


SUBJECTS = [
    Subject("Trainer, ddp", fitted),
    Subject("Trainer, gradient_clip_val=0.2", fitted, {"clip": 0.2}, {"clip": 0.2}),
    Subject("Trainer, accumulate_grad_batches=4", fitted, {"accumulation": 4}),
    Subject("Trainer, find_unused_parameters", fitted, {"unused": True}),
    Subject("Trainer, use_distributed_sampler=True, loader without shuffle", fitted, {"sampler": "default"}),  # another order
    Subject("Trainer, use_distributed_sampler=False, no sampler", fitted, {"sampler": "none"}, {}, ("shards-identical",)),
    Subject("Trainer, mean over own tokens", fitted, {"tokens": True}, {"tokens": True}, ("mean-of-means",), 0, "Lightning#6789"),
    Subject("Trainer, accumulate_grad_batches=4, mean over own tokens", fitted, {"tokens": True, "accumulation": 4}, {"tokens": True},
            ("micro-steps-weighted-alike", "mean-of-means")),
    Subject("Trainer, 94 rows: the sampler repeats some", fitted, {"rows": 94}, {"rows": 94}, ("padding-at-epoch-end", "sample-duplicated"), 3),
    Subject("Trainer, sync_batchnorm=False", fitted, {"batch_norm": True}, {"batch_norm": True}, ("batch-norm-local",)),
    Subject("Trainer with the probe's line", fitted, {"line": True}, {"line": True}),
    Subject("Trainer with the probe's line, mean over own tokens", fitted, {"line": True, "tokens": True}, {"line": True, "tokens": True}, ("mean-of-means",)),
    Subject("Trainer with the probe's line, one row left out of the loss", fitted, {"line": True, "left_out": True}, {"line": True}, ("rows-left-out",)),
]  # fmt: skip
if __name__ == "__main__":
    main(SUBJECTS)
