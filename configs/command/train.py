"""A small classifier under DistributedDataParallel, as PyTorch's tutorial has it: an example of a trainer that is not lockstep's.

    torchrun --nproc-per-node 3 train.py --batch 8 --steps 20
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def data(count, seed):
    points = torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))
    teacher = torch.randn(16, 4, generator=torch.Generator().manual_seed(7))
    return points, (points @ teacher).argmax(dim=1)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, default=8, help="rows of each rank")
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--lr", type=float, default=0.05)
    given = options.parse_args()

    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(given.seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr)

    rows = TensorDataset(*data(960, given.seed))
    sampler = DistributedSampler(rows, ranks, rank, shuffle=True, seed=given.seed, drop_last=True)
    loader = DataLoader(rows, batch_size=given.batch, sampler=sampler, drop_last=True)
    mistake = os.environ.get("MISTAKE", "")  # planted by configs/command.yaml
    step, epoch = 0, 0
    while step < given.steps:
        sampler.set_epoch(epoch)
        for points, classes in loader:
            loss = nn.functional.cross_entropy(model(points), classes)
            if mistake == "crash" and rank == 1 and step == 7:
                raise ValueError(f"the loss is {loss.item():.3f}")
            if mistake == "sum":  # each rank's part should be a mean: DDP averages what ranks have
                loss = loss * ranks
            optimizer.zero_grad()
            loss.backward()
            if mistake == "scale" and ranks > 1 and step >= 5:  # DDP has divided by the number of ranks already
                for parameter in model.parameters():
                    parameter.grad /= ranks
            if mistake == "rate" and ranks > 1 and step >= 5:  # scaled with the number of ranks, though the batch of all ranks is the same
                optimizer.param_groups[0]["lr"] = given.lr * ranks
            optimizer.step()
            step += 1
            if step == given.steps:
                break
        epoch += 1

    points, classes = data(480, 1000)
    with torch.no_grad():
        accuracy = (model(points).argmax(dim=1) == classes).float().mean().item()
    if rank == 0:
        print(f"accuracy {accuracy:.3f} after {step} steps")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
