"""verl's `agg_loss` in each of its modes, on 24 answers of unequal length and unequal numbers of answers on the ranks."""

import functools

import torch
from verl.trainer.ppo.core_algos import agg_loss

from answers import answers, backward, batches, policy
from subject import STEPS, WORLD, Subject, distributed, main, share

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


def updated(mode="token-mean", counted="all", micro=1, shares=(12, 7, 5)):
    """`counted`: the counts that `agg_loss` gets: of all ranks, or none, so that it counts what it sees.

    `micro`: micro-steps of a rank; each loss times its rows over the rank's, as verl does without global counts.
    """
    x, taken, advantages, mask = answers()
    model = distributed(policy())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(part, rows, everyone):
        log_probs = torch.log_softmax(model(x[part]), -1).gather(-1, taken[part][..., None])[..., 0]
        losses = -torch.exp(log_probs - log_probs.detach()) * advantages[part][:, None]
        if counted == "all":
            return agg_loss(losses, mask[part], mode, dp_size=WORLD, batch_num_tokens=mask[everyone].sum(), global_batch_size=len(everyone))
        return agg_loss(losses, mask[part], mode) * (len(part) / len(rows))

    for everyone in batches(STEPS):
        rows = share(everyone, shares)
        parts = [rows[len(rows) * k // micro : len(rows) * (k + 1) // micro] for k in range(micro)]
        optimizer.zero_grad()
        backward(model, [(part is parts[-1], functools.partial(loss_of, part, rows, everyone)) for part in parts])
        optimizer.step()


def subject(mode, name="", settings=(), expect=(), known=""):
    return Subject(f"agg_loss, {mode}{name}", updated, {"mode": mode, **dict(settings)}, {"mode": mode}, expect, 0, known)


OWN, EQUAL = {"counted": "own"}, {"counted": "own", "shares": (8, 8, 8)}
SUBJECTS = [
    *map(subject, MODES),
    *(subject(mode, ", no global counts", OWN, ("mean-of-means",)) for mode in MODES if mode != "token-sum"),
    subject("token-sum", ", dp_size left out", OWN, ("loss-over-world", "gradient-over-world", "mean-taken-twice")),
    subject("token-mean", ", no global counts, 3 micro-steps weighted by rows", EQUAL | {"micro": 3}, ("micro-steps-weighted-alike", "mean-of-means"), "verl#5625"),
    subject("seq-mean-token-sum", ", no global counts, equal rows", EQUAL),
]
if __name__ == "__main__":
    main(SUBJECTS)
