"""TRL's `GRPOTrainer._compute_loss` in each loss_type, on a small policy; generation and the trainer's loop are left out."""

import collections
import types

import accelerate
import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from of_verl import BATCH, LENGTH, ROWS, answers, policy
from subject import TEN, THREE, ZERO, Subject, share

LIBRARY = "trl"


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


def trained(run, loss_type="grpo", accumulation=1):
    x, taken, advantages, mask = answers()
    model = run.begin(policy())
    called = torch.nn.parallel.DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    probe = run.attach(called, optimizer)
    trainer = Grpo(model, loss_type, x, accumulation)

    def loss_of(model, rows):
        tokens = float(mask[rows[0] // BATCH * BATCH : rows[0] // BATCH * BATCH + BATCH].sum())
        inputs = {"prompt_ids": torch.tensor(rows)[:, None], "prompt_mask": torch.ones(len(rows), 1), "completion_ids": taken[rows],
                  "completion_mask": mask[rows], "advantages": advantages[rows], "num_items_in_batch": torch.tensor(tokens)}  # fmt: skip
        return trainer._compute_loss(model, inputs)

    def step_on(model, rows):
        loss = loss_of(model, rows)
        loss.backward()
        return loss

    if run.lines == TEN:
        probe.replay(step_on)
    for step in range(run.steps):
        everyone = [i + step * BATCH % ROWS for i in range(BATCH)]
        rows = share(everyone, run.rank, run.world, (8, 8, 8))
        optimizer.zero_grad()
        total = 0.0
        for k in range(accumulation):
            part = rows[len(rows) * k // accumulation : len(rows) * (k + 1) // accumulation]
            probe.rows(part, x[part].flatten(1))
            loss = loss_of(called, part)
            if run.world > 1 and k + 1 < accumulation:
                with called.no_sync():
                    loss.backward()
            else:
                loss.backward()
            total += float(loss.detach())
        optimizer.step()
        probe.step(total)
    run.end(model)


EQUAL, ACCUMULATED = "24 answers; 3 × 8", "24 answers; 3 × 4 × 2"


def subject(kind, name="", settings=(), **more):
    return Subject(LIBRARY, f"GRPO, loss_type={kind}{name}", trained, {"loss_type": kind, **dict(settings)}, {"loss_type": kind}, **{"layout": EQUAL} | more)


SUBJECTS = [
    subject("grpo", lines=(ZERO, THREE, TEN)), subject("dr_grpo", lines=(THREE,)), subject("dapo", lines=(ZERO, THREE, TEN)), subject("cispo", lines=(THREE,)),
    subject("luspo", lines=(THREE,)),
    subject("dapo", ", accumulation 4", {"accumulation": 4}, layout=ACCUMULATED),
    subject("grpo", ", accumulation 4", {"accumulation": 4}, layout=ACCUMULATED),
    subject("bnpo", expect=("mean-of-means",)),
    subject("bnpo", ", accumulation 4", {"accumulation": 4}, expect=("micro-steps-weighted-alike", "mean-of-means"), layout=ACCUMULATED),
]
