"""A DistributedDataParallel trainer as in PyTorch's tutorial, with the probe's three lines."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import lockstep_probe


class Data(Dataset):
    def __init__(self, rows):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(rows, 12, generator=generator)
        self.y = (self.x[:, :3] * 2 + 0.1 * torch.randn(rows, 3, generator=generator)).argmax(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(12, 24)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(24, 3)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model = DDP(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loss_fn = nn.CrossEntropyLoss()
    data = Data(96)
    loader = DataLoader(data, batch_size=args.batch, sampler=DistributedSampler(data, shuffle=False))
    probe = lockstep_probe.attach(model, optimizer)
    if os.environ.get("REPLAY"):
        def step_on(model, ids):
            loss = loss_fn(model(data.x[ids]), data.y[ids])
            loss.backward()
            return loss

        probe.replay(step_on)
    step = 0
    while step < args.steps:
        for ids, x, y in loader:
            probe.rows(ids, x, y)
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            (loss * float(os.environ.get("FACTOR", 1))).backward()
            optimizer.step()
            probe.step(loss)
            step += 1
            if step == args.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
