"""Answers of unequal length, with their advantages, and a policy for them."""

import torch

ROWS, BATCH, LENGTH = 96, 24, 12


def answers():
    draw = torch.Generator().manual_seed(11)
    x = torch.randn(ROWS, LENGTH, 6, generator=draw)
    taken = torch.randint(0, 5, (ROWS, LENGTH), generator=draw)
    advantages = torch.randn(ROWS, generator=draw)
    # Long answers come in the batch's first half.
    lengths = torch.randint(1, 4, (ROWS,), generator=draw) + 8 * (torch.arange(ROWS) % BATCH < 10)
    return x, taken, advantages, (torch.arange(LENGTH) < lengths[:, None]).float()


def policy():
    torch.manual_seed(6)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5))


def batches(steps):
    """The rows of each step."""
    return [[row + step * BATCH % ROWS for row in range(BATCH)] for step in range(steps)]


def backward(model, losses):
    """Of micro-steps, which `losses` makes one by one: only the last one's gradients are reduced."""
    for last, loss in losses:
        if hasattr(model, "no_sync") and not last:
            with model.no_sync():
                loss().backward()
        else:
            loss().backward()
