"""What PyTorch's own DistributedSampler gives each rank, for cases on stdin: lines `N WORLD DROP_LAST SHUFFLE SEED EPOCH`.

Prints a line per case: FNV-1a of all ranks' lists in order, each preceded by its length. The last line says whether the CPU
generator takes more than the lower 32 bits of a seed.
"""
import sys

import torch
from torch.utils.data import DistributedSampler


def fnv(values):
    state = 0xCBF29CE484222325
    for value in values:
        for byte in int(value).to_bytes(8, "little", signed=True):
            state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state


def main():
    for line in sys.stdin:
        n, world, drop_last, shuffle, seed, epoch = map(int, line.split())
        flat = []
        for rank in range(world):
            sampler = DistributedSampler(range(n), world, rank, shuffle=bool(shuffle), seed=seed, drop_last=bool(drop_last))
            sampler.set_epoch(epoch)
            ids = list(sampler)
            flat += [len(ids)] + ids
        print(f"{fnv(flat):016x}")
    first = torch.rand(8, generator=torch.Generator().manual_seed(5))
    second = torch.rand(8, generator=torch.Generator().manual_seed(5 + (1 << 32)))
    print("low_32_bits" if torch.equal(first, second) else "more_bits")


if __name__ == "__main__":
    main()
