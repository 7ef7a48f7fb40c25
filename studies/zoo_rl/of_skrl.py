"""skrl: its running scaler over three batches, and PPO's advantages."""

import torch
from skrl.agents.torch.ppo.ppo import compute_gae
from skrl.resources.preprocessors.torch import RunningStandardScaler

from subject import Subject


def column(rewards):
    return torch.tensor(rewards, dtype=torch.float32).reshape(-1, 1)


def scaler(rank, world, shards, size):
    norm = RunningStandardScaler(1, device="cpu")
    for rewards, _ in shards:
        out = norm(column(rewards), train=True)
    return out[:, 0].tolist()


def advantages(rank, world, shards, size):
    """One step of as many environments as rows, all of which end."""
    rewards = column(shards[-1][0])[None]
    zeros, ended = torch.zeros_like(rewards), torch.ones_like(rewards, dtype=torch.bool)
    return compute_gae(rewards=rewards, terminated=ended, truncated=~ended, values=zeros, last_values=zeros[0])[1].reshape(-1).tolist()


SUBJECTS = [
    Subject("skrl", "RunningStandardScaler", scaler, history=3),
    Subject("skrl", "compute_gae", advantages),
]
