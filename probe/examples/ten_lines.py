"""DistributedDataParallel as in PyTorch's tutorial, with the probe's lines: three, or with step_on() and replay() ten.
Then steps of the reference are replayed, in float32 and in float64.

    lockstep trace --out A -- torchrun --nproc-per-node 1 ten_lines.py --batch 24
    lockstep trace --out B --against A -- torchrun --nproc-per-node 8 ten_lines.py --batch 3
    lockstep compare A B
"""

import argparse

import lockstep_probe
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Rows(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(count, 12, generator=generator)
        self.y = self.x[:, :3].argmax(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    loss_fn = nn.CrossEntropyLoss()
    data = Rows(96)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    probe = lockstep_probe.attach(model, optimizer)

    def step_on(model, ids):
        loss = loss_fn(model(data.x[ids]), data.y[ids])
        loss.backward()
        return loss

    probe.replay(step_on)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for ids, x, y in loader:
            probe.rows(ids, x, y)
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            probe.step(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
