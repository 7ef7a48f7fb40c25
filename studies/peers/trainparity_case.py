"""The token-mean twin as a case of TrainParity."""

import os

import torch
from trainparity.api import LossAccounting, TrainingState

from alone import from_the_start
from faults import ACCUMULATED
from twin import Fault, Trainer


class Case:
    equivalence = "the same 24 rows in the same order; the mean over all their tokens"

    def build(self, seed, device):
        settings = ACCUMULATED.but(seed=seed, norm=os.environ["PEERS_NORM"] == "1")
        self.trainer = Trainer(settings, 0, from_the_start(os.environ["PEERS_FAULT"]))
        self.trainer.step = 0
        return TrainingState(self.trainer.model, self.trainer.optimizer)

    def batch(self, device):
        _, ids, _ = next(self.trainer.batches())
        return torch.tensor(ids)

    def loss(self, state, batch):
        t, ids = self.trainer, batch.tolist()
        rows = t.row_losses(t.model, t.inputs(ids), ids)
        tokens = t.tokens(ids)
        value = t.fault.loss(t, rows.sum()) / tokens
        if type(t.fault).part_weight is not Fault.part_weight:  # a loss that knows its own tokens alone
            return LossAccounting(value)
        return LossAccounting(value, value * tokens, tokens)
