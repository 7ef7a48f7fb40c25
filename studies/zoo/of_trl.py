"""TRL's `GRPOTrainer._compute_loss` in each loss_type, on a small policy; generation and the trainer's loop are left out."""

import collections
import functools
import types

import accelerate
import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from answers import LENGTH, answers, backward, batches, policy
from subject import STEPS, Subject, distributed, main, share


class Grpo(GRPOTrainer):
    """The attributes that the method reads, at the trainer's defaults; everything else would raise AttributeError."""

    def __init__(self, model, loss_type, features, accumulation):
        self.model, self.loss_type, self.features = model, loss_type, features
        self.accelerator = accelerate.Accelerator(cpu=True)
        self.args = types.SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=accumulation, gradient_accumulation_steps=accumulation)
        self.current_gradient_accumulation_steps = accumulation
        self.importance_sampling_level, self.top_entropy_quantile, self.off_policy_mask_threshold = "token", 1.0, None
        self.beta, self.epsilon_low, self.epsilon_high, self.max_completion_length = 0.0, 0.2, 0.2, LENGTH
        self.use_vllm, self.vllm_importance_sampling_correction, self.aux_loss_enabled = False, False, False
        self._entropy_bonus_enabled, self.entropy_coef, self.use_adaptive_entropy = False, 0.0, False
        self._metrics = {"train": collections.defaultdict(list), "eval": collections.defaultdict(list)}

    def _get_per_token_logps_and_entropies(self, model, ids, mask, keep, **_):
        rows = ids[:, 0]
        log_probs = torch.log_softmax(model(self.features[rows]), -1)
        return log_probs.gather(-1, ids[:, 1:, None])[..., 0], -(log_probs.exp() * log_probs).sum(-1).detach(), None


def trained(loss_type="grpo", accumulation=1):
    x, taken, advantages, mask = answers()
    bare = policy()
    model = distributed(bare)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    trainer = Grpo(bare, loss_type, x, accumulation)

    def loss_of(rows, tokens):
        inputs = {"prompt_ids": torch.tensor(rows)[:, None], "prompt_mask": torch.ones(len(rows), 1), "completion_ids": taken[rows],
                  "completion_mask": mask[rows], "advantages": advantages[rows], "num_items_in_batch": tokens}  # fmt: skip
        return trainer._compute_loss(model, inputs)

    for everyone in batches(STEPS):
        rows = share(everyone)
        n = len(rows) // accumulation
        optimizer.zero_grad()
        backward(model, [(k + n == len(rows), functools.partial(loss_of, rows[k : k + n], mask[everyone].sum())) for k in range(0, len(rows), n)])
        optimizer.step()


def subject(kind, name="", settings=(), expect=()):
    return Subject(f"GRPO, loss_type={kind}{name}", trained, {"loss_type": kind, **dict(settings)}, {"loss_type": kind}, expect)


SUBJECTS = [
    *map(subject, ("grpo", "dr_grpo", "dapo", "cispo", "luspo")),
    subject("dapo", ", accumulation 4", {"accumulation": 4}),
    subject("grpo", ", accumulation 4", {"accumulation": 4}),
    subject("bnpo", expect=("mean-of-means",)),
    subject("bnpo", ", accumulation 4", {"accumulation": 4}, ("micro-steps-weighted-alike", "mean-of-means")),
]
if __name__ == "__main__":
    main(SUBJECTS)
