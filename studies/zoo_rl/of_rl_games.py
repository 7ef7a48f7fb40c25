"""rl-games: running statistics over three batches, and the advantages of `prepare_dataset`."""

import contextlib
import io
import types

import torch
from rl_games.algos_torch.moving_mean_std import GeneralizedMovingStats
from rl_games.algos_torch.running_mean_std import RunningMeanStd
from rl_games.common.a2c_common import ContinuousA2CBase

from subject import Subject


def column(rewards):
    return torch.tensor(rewards, dtype=torch.float32).reshape(-1, 1)


def running(rank, world, shards, size):
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its size
        norm = RunningMeanStd((1,))
    for rewards, _ in shards:
        out = norm(column(rewards))
    return out[:, 0].tolist()


def prepared(masked, moving=False):
    def run(rank, world, shards, size):
        returns = column(shards[-1][0])
        kept = {}
        agent = types.SimpleNamespace(
            normalize_value=False, normalize_advantage=True, normalize_rms_advantage=moving, is_rnn=masked, config={}, multi_gpu=world > 1,
            has_central_value=False, world_size=world, dataset=types.SimpleNamespace(update_values_dict=kept.update),
            advantage_mean_std=GeneralizedMovingStats((1,), momentum=0.5) if moving else None,
        )  # fmt: skip
        names = ("obses", "dones", "actions", "neglogpacs", "mus", "sigmas", "rnn_states")
        batch = dict.fromkeys(names) | {"returns": returns, "values": torch.zeros_like(returns)}
        batch["rnn_masks"] = torch.ones(len(returns)) if masked else None
        ContinuousA2CBase.prepare_dataset(agent, batch)
        return kept["advantages"].tolist()

    return run


SUBJECTS = [
    Subject("rl-games", "RunningMeanStd", running, history=3),
    Subject("rl-games", "normalize_advantage", prepared(False)),
    Subject("rl-games", "normalize_advantage, recurrent", prepared(True)),
    Subject("rl-games", "normalize_rms_advantage", prepared(False, True)),
]
