"""verl: its estimators run in one process, the driver, on all rows; rank 0 is the driver here and scatters the advantages."""

import types

import numpy as np
import torch
import torch.distributed as dist
from verl import DataProto
from verl.trainer.ppo import ray_trainer
from verl.utils import torch_functional

from subject import Subject

CONFIG = types.SimpleNamespace(gamma=1.0, get=lambda key, default=None: default)


def batch_of(rewards, groups):
    """A DataProto with one answer token a row, behind prompts of unequal length (they are what the rows are balanced by)."""
    n = len(rewards)
    prompts = torch.tensor([[0] * (9 - (1 + 4 * i % 9)) + [1] * (1 + 4 * i % 9) for i in range(n)]).reshape(n, 9)
    column = torch.tensor(rewards, dtype=torch.float32).reshape(n, 1)
    return DataProto.from_dict(
        tensors={
            "token_level_rewards": column, "values": torch.zeros(n, 1), "response_mask": torch.ones(n, 1), "prompts": prompts,
            "attention_mask": torch.cat([prompts, torch.ones(n, 1, dtype=prompts.dtype)], 1), "row": torch.arange(n),
        },
        non_tensors={"uid": np.array([str(g) for g in groups], dtype=object)},
    )  # fmt: skip


def on_the_driver(rewards, groups, estimator, world, **settings):
    data = batch_of(rewards, groups)
    trainer = types.SimpleNamespace(_get_dp_size=lambda *_: world, actor_rollout_wg=None, use_prefix_grouper=False, config=None)
    ray_trainer.RayPPOTrainer._balance_batch(trainer, data, metrics={})
    data = ray_trainer.compute_advantage(data, estimator, config=CONFIG, **settings)
    out = torch.empty(len(rewards))
    out[data.batch["row"]] = data.batch["advantages"][:, 0]
    return out.tolist()


def driven(estimator, **settings):
    def run(rank, world, shards, size):
        if world == 1:
            return on_the_driver(*shards[-1], estimator, 1, **settings)
        parts = [None] * world
        dist.all_gather_object(parts, shards[-1])
        rewards, groups = ([v for part in parts for v in part[i]] for i in (0, 1))
        out = [on_the_driver(rewards, groups, estimator, world, **settings) if rank == 0 else None]
        dist.broadcast_object_list(out, 0)
        before = sum(len(part[0]) for part in parts[:rank])
        return out[0][before : before + len(shards[-1][0])]

    return run


def by_itself(rank, world, shards, size):
    rewards = torch.tensor(shards[-1][0], dtype=torch.float32)
    return torch_functional.masked_whiten(rewards, torch.ones_like(rewards)).tolist()


def with_statistics(rank, world, shards, size):
    alone()
    rewards = torch.tensor(shards[-1][0], dtype=torch.float32)
    mean, _, _, std = torch_functional.distributed_mean_max_min_std(rewards)
    return ((rewards - mean) / std).tolist()


def with_mean(rank, world, shards, size):
    alone()
    rewards = torch.tensor(shards[-1][0], dtype=torch.float32)
    return (rewards - torch_functional.distributed_masked_mean(rewards, torch.ones_like(rewards))).tolist()


#: Where it knows no accelerator, verl names the device `cuda`.
torch_functional.get_device_name = lambda: "cpu"


def alone():
    """These call torch.distributed always; one process is a group of one."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


SUBJECTS = [
    Subject("verl", "grpo", driven("grpo"), grouped=True),
    Subject("verl", "grpo, norm_adv_by_std_in_grpo=False", driven("grpo", norm_adv_by_std_in_grpo=False), grouped=True),
    Subject("verl", "grpo_vectorized", driven("grpo_vectorized"), grouped=True),
    Subject("verl", "rloo", driven("rloo"), grouped=True),
    Subject("verl", "rloo_vectorized", driven("rloo_vectorized"), grouped=True),
    Subject("verl", "reinforce_plus_plus", driven("reinforce_plus_plus")),
    Subject("verl", "reinforce_plus_plus_baseline", driven("reinforce_plus_plus_baseline"), grouped=True),
    Subject("verl", "opo", driven("opo"), grouped=True),  # all answers equally long
    Subject("verl", "gpg", driven("gpg"), grouped=True),  # no reward is 0
    Subject("verl", "gae (whitening)", driven("gae")),  # values 0, so that the advantage is the reward
    Subject("verl", "masked_whiten", by_itself),  # verl itself calls it on the driver
    Subject("verl", "distributed_mean_max_min_std", with_statistics),
    Subject("verl", "distributed_masked_mean", with_mean),
]
