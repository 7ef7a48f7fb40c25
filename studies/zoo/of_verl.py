"""verl's `agg_loss` in each of its modes, on 24 answers of unequal length and unequal numbers of answers on the ranks."""

import torch
from torch.nn.parallel import DistributedDataParallel
from verl.trainer.ppo.core_algos import agg_loss

from subject import TEN, THREE, ZERO, Subject, share

LIBRARY = "verl"
ROWS, BATCH, LENGTH = 96, 24, 12
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


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


def row_losses_of(mode, losses, mask):
    """What each row adds to the loss, and what it counts: its tokens where the loss is a mean over tokens, else 1."""
    sums = (losses * mask).sum(1)
    if mode == "token-mean":
        return sums, mask.sum(1).long()
    return sums / mask.sum(1) if mode == "seq-mean-token-mean" else sums, torch.ones(len(mask), dtype=torch.int64)


def updated(run, mode="token-mean", counted="all", micro=1, shares=(12, 7, 5)):
    """`counted`: the counts that `agg_loss` gets: of all ranks, or none, so that it counts what it sees.

    `micro`: micro-steps of a rank; each loss times its rows over the rank's, as verl does without global counts.
    """
    x, taken, advantages, mask = answers()
    model = run.begin(policy())
    called = DistributedDataParallel(model) if run.world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    probe = run.attach(called, optimizer)

    def loss_of(model, rows, everyone, seen=None):
        log_probs = torch.log_softmax(model(x[rows]), -1).gather(-1, taken[rows][..., None])[..., 0]
        losses = -torch.exp(log_probs - log_probs.detach()) * advantages[rows][:, None]
        if seen is not None:
            seen += [row_losses_of(mode, losses.detach(), mask[rows])]
        counts = {"dp_size": run.world, "batch_num_tokens": mask[everyone].sum(), "global_batch_size": len(everyone)} if counted == "all" else {}
        return agg_loss(losses, mask[rows], mode, **counts)

    def whole(rows):
        return list(range(min(rows) // BATCH * BATCH, min(rows) // BATCH * BATCH + BATCH))

    def step_on(model, rows):
        loss = loss_of(model, rows, whole(rows))
        loss.backward()
        return loss

    if run.lines == TEN:
        probe.replay(step_on)
    for step in range(run.steps):
        everyone = [i + step * BATCH % ROWS for i in range(BATCH)]
        rows = share(everyone, run.rank, run.world, shares)
        optimizer.zero_grad()
        total, seen = 0.0, []
        for k in range(micro):
            part = rows[len(rows) * k // micro : len(rows) * (k + 1) // micro]
            probe.rows(part, x[part].flatten(1))
            loss = loss_of(called, part, everyone, seen)
            if counted != "all" and micro > 1:
                loss = loss * len(part) / len(rows)
            if run.world > 1 and k + 1 < micro:
                with called.no_sync():
                    loss.backward()
            else:
                loss.backward()
            total += float(loss.detach())
        optimizer.step()
        probe.step(total, torch.cat([each[0] for each in seen]), torch.cat([each[1] for each in seen]))
    run.end(model)


UNEQUAL = "24 answers; 12 + 7 + 5"
SUBJECTS = [Subject(LIBRARY, f"agg_loss, {mode}", updated, {"mode": mode}, {"mode": mode}, layout=UNEQUAL, lines=(ZERO, THREE, TEN) if mode == MODES[0] else (THREE,))
            for mode in MODES]  # fmt: skip
SUBJECTS += [
    Subject(LIBRARY, f"agg_loss, {mode}, no global counts", updated, {"mode": mode, "counted": "own"}, {"mode": mode}, expect=("mean-of-means",), layout=UNEQUAL)
    for mode in MODES if mode != "token-sum"
] + [
    Subject(LIBRARY, "agg_loss, token-sum, dp_size left out", updated, {"mode": "token-sum", "counted": "own"}, {"mode": "token-sum"},
            expect=("loss-over-world", "gradient-over-world", "mean-taken-twice"), layout=UNEQUAL),
    Subject(LIBRARY, "agg_loss, token-mean, no global counts, 3 micro-steps weighted by rows", updated,
            {"mode": "token-mean", "counted": "own", "micro": 3, "shares": (8, 8, 8)}, {"mode": "token-mean"},
            expect=("micro-steps-weighted-alike", "mean-of-means"), known="verl#5625", layout="24 answers; 3 × 8, micro-steps of 2, 3, 3"),
    Subject(LIBRARY, "agg_loss, seq-mean-token-sum, no global counts, equal rows", updated,
            {"mode": "seq-mean-token-sum", "counted": "own", "shares": (8, 8, 8)}, {"mode": "seq-mean-token-sum"}, layout="24 answers; 3 × 8"),
]  # fmt: skip
