"""DistributedDataParallel as in PyTorch's tutorial, with the probe's three lines and their import.

    lockstep trace --out A -- torchrun --nproc-per-node 1 three_lines.py --batch 24
    lockstep trace --out B -- torchrun --nproc-per-node 8 three_lines.py --batch 3
    lockstep compare A B

Without any of them: lockstep check --ranks 1,8 --rows 24 -- torchrun --nproc-per-node {ranks} three_lines.py --batch {batch}
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
