"""TRL: the trainers' own `_generate_and_score_completions`, with generation and the model's log-probabilities stood in for."""

import collections
import types

import accelerate
import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

from subject import Subject


class Training(torch.nn.Module):
    """A model that does nothing: the trainer asks whether it trains."""

    is_gradient_checkpointing = False


def prepared(trainer, rewards, generations):
    """The attributes that the method reads, at the trainer's defaults; everything else would raise AttributeError."""
    trainer.accelerator = accelerate.Accelerator(cpu=True)
    trainer.model = Training()
    trainer.args = types.SimpleNamespace(
        per_device_train_batch_size=len(rewards), gradient_checkpointing_kwargs=None, steps_per_generation=1,
        gradient_accumulation_steps=1, report_to=[],
    )  # fmt: skip
    trainer._tokenizer = types.SimpleNamespace(pad_token_id=0)
    trainer.state = types.SimpleNamespace(global_step=0)
    trainer.reward_funcs, trainer.reward_processing_classes = [lambda **_: list(rewards)], [None]
    trainer.reward_func_names, trainer.reward_weights = ["reward"], torch.ones(1)
    trainer.num_generations = trainer.num_generations_eval = generations
    trainer.num_iterations, trainer.beta, trainer.ref_model = 1, 0.0, None
    trainer.pad_to_multiple_of, trainer.mask_truncated_completions = None, False
    trainer.environments = trainer.environment_factories = trainer.tools = None
    trainer.use_vllm, trainer.log_multimodal = False, False
    trainer.vllm_importance_sampling_correction = False
    trainer._pending_extra_logs, trainer._pending_metrics = collections.defaultdict(list), collections.defaultdict(list)
    trainer._metrics = {"train": collections.defaultdict(list)}
    trainer._logs = {"prompt": [], "completion": [], "rewards": collections.defaultdict(list), "advantages": []}
    return trainer


def ids(prompts):
    return [[1] for _ in prompts], [[1] for _ in prompts]


class Grpo(GRPOTrainer):
    def __init__(self, rewards, generations, **settings):
        self.multi_objective_aggregation, self.scale_rewards = "sum_then_normalize", "group"
        for name, value in settings.items():
            setattr(self, name, value)
        prepared(self, rewards, generations)

    def _generate(self, prompts):
        return *ids(prompts), None, ["" for _ in prompts], None, {}, None, None

    def _get_per_token_logps_and_entropies(self, model, prompt_completion_ids, *_, **__):
        return torch.zeros(len(prompt_completion_ids), 1), None, None


class Rloo(RLOOTrainer):
    def __init__(self, rewards, generations, **settings):
        self.normalize_advantages, self.reward_clip_range = False, None
        for name, value in settings.items():
            setattr(self, name, value)
        prepared(self, rewards, generations)

    def _generate(self, prompts):
        return *ids(prompts), ["" for _ in prompts]

    def _get_per_token_logps_and_entropies(self, model, prompt_completion_ids, *_, **__):
        return torch.zeros(len(prompt_completion_ids), 1), None, None


def asked(trainer, **settings):
    def run(rank, world, shards, size):
        rewards, _ = shards[-1]
        made = trainer(rewards, size, **settings)
        inputs = [{"prompt": "p"} for _ in rewards]
        return made._generate_and_score_completions(inputs)["advantages"].tolist()

    return run


SUBJECTS = [
    Subject("trl", "GRPO, scale_rewards=group", asked(Grpo), grouped=True),
    Subject("trl", "GRPO, scale_rewards=batch", asked(Grpo, scale_rewards="batch"), grouped=True),
    Subject("trl", "GRPO, scale_rewards=none", asked(Grpo, scale_rewards="none"), grouped=True),
    Subject("trl", "GRPO, normalize_then_sum", asked(Grpo, multi_objective_aggregation="normalize_then_sum"), grouped=True),
    Subject("trl", "RLOO", asked(Rloo), grouped=True),
    Subject("trl", "RLOO, normalize_advantages", asked(Rloo, normalize_advantages=True), grouped=True),
]
