#!/usr/bin/env python3
"""Writes sampler_golden.txt beside this file: what PyTorch itself answers, as hashes.

Run it with a Python that has torch 2.13; data_test.cpp reads the result, so that the test needs no Python.
Lines: `randperm N SEED HASH` and `batches N V B DROP_LAST SHUFFLE SEED EPOCH BATCHES HASH`, the latter over all ranks'
batches of the epoch as a DataLoader with a DistributedSampler gives them, each batch preceded by its length.
"""
import itertools
import pathlib
import random

import torch
from torch.utils.data import DataLoader, DistributedSampler


def fnv(values):
    state = 0xCBF29CE484222325
    for value in values:
        for byte in int(value).to_bytes(8, "little", signed=True):
            state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state


class Ids(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def batches(n, world, rows, drop_last, shuffle, seed, epoch):
    flat, count = [], None
    for rank in range(world):
        sampler = DistributedSampler(Ids(n), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        sampler.set_epoch(epoch)
        loader = DataLoader(Ids(n), batch_size=rows, sampler=sampler, drop_last=drop_last)
        got = [batch.tolist() for batch in loader]
        assert count in (None, len(got))
        count = len(got)
        for batch in got:
            flat += [len(batch)] + batch
    return count, fnv(flat)


def main():
    draw = random.Random(20261121)
    lines = []
    seeds = [0, 1, 2, 5, -1, -7, 2**31 - 1, 2**31, 2**32, 2**32 + 5, 2**40 + 3, 2**63 - 1, -(2**63)]
    for n in [0, 1, 2, 3, 7, 24, 100, 623, 624, 625, 1404, 1560, 70000]:
        for seed in seeds if n > 1 else [0, -7]:
            order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
            lines.append(f"randperm {n} {seed} {fnv(order):016x}")
    cases = [
        (1404, v, b, d, s, seed, epoch)
        for (v, b), d, s, (seed, epoch) in itertools.product(
            [(1, 24), (8, 3), (3, 8), (5, 4)], [True, False], [True, False], [(0, 0), (3, 2), (-5, 9)])
    ]
    while len(cases) < 130:
        n, v, b = draw.randint(1, 300), draw.randint(1, 16), draw.randint(1, 9)
        d = draw.random() < 0.5
        cases.append((n, v, b, d, draw.random() < 0.7, draw.randint(-(2**40), 2**40), draw.randint(0, 1000)))
    for case in cases:
        count, value = batches(*case)
        n, v, b, d, s, seed, epoch = case
        lines.append(f"batches {n} {v} {b} {int(d)} {int(s)} {seed} {epoch} {count} {value:016x}")
    path = pathlib.Path(__file__).with_name("sampler_golden.txt")
    path.write_text(f"# torch {torch.__version__}\n" + "\n".join(lines) + "\n")
    print(f"{path}: {len(lines)} cases")


if __name__ == "__main__":
    main()
