"""One function of a library, and how it is called on one of several ranks."""

import dataclasses
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Subject:
    """`run(rank, world, shards, size)` returns the advantages (or normalised values) of this rank's rows of the last batch.

    `shards` holds, per batch of the history, this rank's (rewards, groups); `size` is the number of rows of a group.
    """

    library: str
    name: str
    where: str
    fed: str
    run: Callable
    grouped: bool = False  # it knows groups of rows
    history: int = 1  # batches that it sees, the last one is judged

    @property
    def key(self):
        return f"{self.library}: {self.name}"
