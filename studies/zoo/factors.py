"""How the gradients of two runs compare, by group of parameters: the first step's reduced gradients, from their traces."""

import os

import torch

from lockstep_probe import trace_file

TOLERANCE = 1e-4


def reduced(folder, wanted):
    """{name: gradient} of a step, as rank 0 holds it."""
    phase = trace_file.PHASES["reduced gradients"]
    for step, records in trace_file.read_steps(os.path.join(folder, "rank-0.trace")):
        if step == wanted:
            return {r.name: r.values.double() for r in records if r.phase == phase and r.values is not None}
    return {}


def factors(reference, run, groups, step=0):
    """{group: {"ratio", "cos"}}: <g, r> / <r, r> and the cosine; ratio alone says nothing where the cosine is not 1."""
    wanted, got = reduced(reference, step), reduced(run, step)
    found = {}
    for group, starts in groups.items():
        names = [name for name in wanted if name.startswith(tuple(starts)) and name in got]
        if not names:
            continue
        r = torch.cat([wanted[name].reshape(-1) for name in names])
        g = torch.cat([got[name].reshape(-1) for name in names])
        dot, rr, gg = float(r @ g), float(r @ r), float(g @ g)
        if rr == 0 or gg == 0:
            found[group] = {"ratio": 0.0 if gg == 0 else None, "cos": None}
        else:
            found[group] = {"ratio": round(dot / rr, 6), "cos": round(dot / (rr * gg) ** 0.5, 6), "off": float((g - r).norm()) / rr**0.5}
    return found
