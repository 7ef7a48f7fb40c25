"""A public report as a case: what it should equal, its mistake, and what there is to find."""

import dataclasses
import typing


@dataclasses.dataclass
class Case:
    """`codes`: the right names, as the report's root cause says. `phase`: where the mistake first shows, one or several."""

    report: str
    title: str
    codes: tuple
    program: typing.Callable
    phase: tuple
    ranks: int = 2
    step: int = 0
    rank: int | None = None  # the one rank that is wrong
    reference_ranks: int = 1
    reference: typing.Callable | None = None  # another program than the right one

    def name(self):
        words = self.report.split("/")[-1].replace("#", "-") + "-" + self.program.__name__
        return words.replace("_", "-").lower()
