"""What is known of the step that is open."""

import torch

from lockstep_probe import hashing, random_state


def _sum(numbers, parts):
    """Over `parts`; of numbers that a GPU has not given yet a Later."""
    made = lambda: sum(map(float, numbers)) / parts  # noqa: E731
    return hashing.Later(made) if any(isinstance(each, hashing.Later) for each in numbers) else made()


class Step:
    """`keeps`: all values; `records`: anything at all."""

    def __init__(self, number, keeps, records, ledger):
        self.number, self.keeps, self.records, self.ledger = number, keeps, records, ledger
        self.ids, self.batches = [], []
        self.first, self.last, self.state = [], [], []  # records before and after the gradients'; what the step led to
        self.inputs, self.labels, self.row_losses = [], [], []  # ids and what they hold, or lose and count
        self.scored = []  # ids, columns and values of rewards, by call
        self.losses, self.roots, self.terms = [], [], {}
        self.others_roots = []  # of backward passes that no hook of the model saw: they count where none was seen
        self.backwards, self.buckets = 0, 0
        self.rates = {}  # of each optimizer, after the last backward pass
        self.asked = False  # step() has been called
        self.due = False  # parameters after the update are still to be recorded
        self.late = False  # the same, of parameters that come from elsewhere, or are exchanged: before the next step
        self.norm, self.clipped = None, []  # of the whole gradient; what has been clipped by which norm
        self.stepped = []  # optimizers whose update has been made or left out
        self.updated = set()  # their parameters: gradients that they get afterwards are no longer this step's
        self.skipped = False
        self.scale = 1.0
        self.generators = self.generators_after = None  # states of random generators at its beginning, and when it is written
        self.drawing = self.drew_from = None
        self.draws = 0  # of forward passes

    def count_draws(self, xxh3):
        """Numbers that the forward pass took, by dropout for instance: of another layout each row gets others."""
        if self.drawing is None:
            return
        now = torch.get_rng_state()
        if not torch.equal(self.drawing, now):
            self.draws += random_state.draws_between(self.drawing, now) or 1
            self.drew_from = self.drew_from or xxh3(hashing.raw(self.drawing))
        self.drawing = None

    # Its records.

    def record(self, recorder):
        """All in their order, but for collectives."""
        records = [recorder.samples(self.ids)] if self.ids else []
        records += self._random(recorder) + self._inputs(recorder) + self._rewards(recorder) + self._losses(recorder)
        if self.scale != 1:
            records.append(recorder.scalar("control", "loss_scale", self.scale))
        if self.skipped:
            records.append(recorder.scalar("control", "skipped", 1.0))
        if self.norm is not None:
            records.append(recorder.scalar("gradient norm", "gradient_norm", self.norm, alike=True))
        return records

    def _random(self, recorder):
        self.generators_after = random_state.states(recorder.hashes.xxh3)
        records = [recorder.random(*stream) for stream in random_state.used(self.generators, self.generators_after)]
        if self.draws:
            records.append(recorder.random("process/model", self.drew_from, self.draws))
        return records

    def holds(self, recorder, ids, inputs, labels):
        """What rows of the step hold: at once in the form in which it is recorded, so that no batch is kept."""
        for tensor, records in ((inputs, self.inputs), (labels, self.labels)):
            if tensor is not None and self.records:
                classes = records is self.labels and tensor.dim() == 1 and not tensor.is_floating_point()
                rows = tensor.to(torch.int64, copy=True) if classes else recorder.hashes.row_hashes(tensor)
                if tensor.dim() > 1 and len(rows):  # rows are padded to the longest of their batch: hashes of other lengths do not compare
                    rows = torch.stack([rows, torch.full_like(rows, tensor.shape[1])], 1)
                records.append((ids, rows))

    def _inputs(self, recorder):
        given = [(name, [i for each in parts for i in each[0]], [each[1] for each in parts])
                 for name, parts in (("inputs", self.inputs), ("labels", self.labels)) if parts]  # fmt: skip
        return [recorder.tensor("inputs", name, torch.cat(rows), ids=ids, values=True) for name, ids, rows in given]

    def _rewards(self, recorder):
        """Rewards, advantages, groups and ratios by row, of all calls that gave the same of them."""
        if len({columns for _, columns, _ in self.scored}) != 1:
            return []
        ids = [i for each in self.scored for i in each[0]]
        values = torch.cat([each[2] for each in self.scored])
        columns = torch.tensor(self.scored[0][1], dtype=torch.int64)
        rows = recorder.tensor("energies", "energies", values, ids=ids, values=True)
        return [rows, recorder.tensor("energies", "columns", columns, values=True)]

    def _losses(self, recorder):
        records = []
        if self.losses:
            records.append(recorder.scalar("loss", "loss", _sum(self.losses, len(self.losses))))
        elif self.roots or self.others_roots:
            roots = list(map(recorder.number, self.roots or self.others_roots))
            records.append(recorder.scalar("loss", "loss", _sum(roots, self.scale)))
        for name, (value, weight) in self.terms.items():
            records += [recorder.scalar("loss", f"loss/{name}", value), recorder.scalar("loss", f"weight/{name}", weight)]
        if self.row_losses and [i for each in self.row_losses for i in each[0]] == self.ids:
            _, rows, counts = zip(*self.row_losses)
            records.append(recorder.tensor("loss", "row_losses", torch.cat(rows), ids=self.ids, values=self.keeps))
            if sum(len(each) for each in counts if each is not None) == len(self.ids):
                records.append(recorder.tensor("loss", "row_counts", torch.cat(counts), ids=self.ids, values=True))
        return records
