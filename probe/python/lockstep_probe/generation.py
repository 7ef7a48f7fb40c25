"""Samples that a program draws from its own model's probabilities, such as completions: in a short run row by row.

A program seeds each rank otherwise, and a rank draws for its rows alone: the completions of two layouts would have nothing in common. Here a row's
draw depends on its place among the rows of all ranks, on the generation and on the token's number: where weights and rows are the reference's,
completions are. Engines outside the process draw as they do.
"""

import functools
import os

import torch

from lockstep_probe import patches

_drawn = [0, 0]  # generations begun in this process, and draws of the last one


def by_row():
    """Once a process: torch.multinomial of one sample for each row of a batch."""
    plain = torch.multinomial

    @functools.wraps(plain)
    def multinomial(input, num_samples, replacement=False, *, generator=None, out=None):  # noqa: A002  its name there
        probe = next((probe for probe in patches.probes() if probe.loaders is not None and not probe.is_off and probe.process == os.getpid()), None)
        if probe is None or input.dim() != 2 or num_samples != 1 or generator is not None or out is not None or torch.is_grad_enabled():
            return plain(input, num_samples, replacement, generator=generator, out=out)
        outer, probe.inside = probe.inside, True
        try:
            return _drawn_from(probe, input)
        finally:
            probe.inside = outer

    torch.multinomial = multinomial


def _drawn_from(probe, input_BV):
    probe.generated.add(probe.number + 1 if probe.current is None or probe.is_over(probe.current) else probe.number)
    turn, ranks = probe.loaders.turn()
    rows = input_BV.shape[0]
    source = torch.Generator().manual_seed(1_000_003 * _drawn[0] + _drawn[1])
    _drawn[1] += 1
    u_B = torch.rand(rows * ranks, 1, generator=source, dtype=torch.float64)[turn * rows : (turn + 1) * rows]
    sums_BV = input_BV.double().cumsum(-1)
    return torch.searchsorted(sums_BV, u_B.to(sums_BV.device) * sums_BV[:, -1:], right=True).clamp(max=input_BV.shape[1] - 1)


def count(module):
    """Of transformers' `generate`: where a generation begins."""
    generate = module.GenerationMixin.generate

    @functools.wraps(generate)
    def begun(self, *args, **kwargs):
        _drawn[:] = [_drawn[0] + 1, 0]
        return generate(self, *args, **kwargs)

    module.GenerationMixin.generate = begun
