"""rsl-rl: its empirical normalisers over three batches, and PPO's advantages of one step."""

import types

import torch
from rsl_rl.algorithms.ppo import PPO
from rsl_rl.modules.normalization import EmpiricalDiscountedVariationNormalization, EmpiricalNormalization

from subject import Subject


def column(rewards):
    return torch.tensor(rewards, dtype=torch.float32).reshape(-1, 1)


def empirical(rank, world, shards, size):
    norm = EmpiricalNormalization(1)
    for rewards, _ in shards:
        norm.update(column(rewards))
    return norm(column(shards[-1][0]))[:, 0].tolist()


def discounted(rank, world, shards, size):
    """A batch is a step of the environments here; gamma 0 leaves each step its own reward."""
    norm = EmpiricalDiscountedVariationNormalization(1, gamma=0.0)
    for rewards, _ in shards[:-1]:
        norm.emp_norm.update(column(rewards))
    return norm(column(shards[-1][0]))[:, 0].tolist()


def advantages(rank, world, shards, size):
    rewards = column(shards[-1][0])
    storage = types.SimpleNamespace(
        num_transitions_per_env=1, rewards=rewards[None], values=torch.zeros_like(rewards)[None], dones=torch.ones_like(rewards)[None],
        returns=torch.zeros_like(rewards)[None], advantages=None,
    )  # fmt: skip

    class Critic:
        def get_hidden_state(self):
            return None

        def reset(self, hidden_state=None):
            pass

        def __call__(self, obs):
            return torch.zeros_like(rewards)

    ppo = types.SimpleNamespace(
        storage=storage, critic=Critic(), gamma=0.99, lam=0.95, normalize_advantage_per_mini_batch=False, is_multi_gpu=world > 1, gpu_world_size=world
    )
    PPO.compute_returns(ppo, None)
    return storage.advantages.reshape(-1).tolist()


SUBJECTS = [
    Subject("rsl-rl-lib", "EmpiricalNormalization", empirical, history=3),
    Subject("rsl-rl-lib", "EmpiricalDiscountedVariationNormalization", discounted, history=3),
    Subject("rsl-rl-lib", "PPO.compute_returns", advantages),
]
