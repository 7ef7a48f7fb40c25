"""Reads a normaliser's conventions off by experiment: what it subtracts, what it divides by, ddof, epsilon and where it stands, a clamp.

A function takes rewards and the group of each, and returns a value for each. It is compared with every form below at rewards so large
that no epsilon matters; the epsilon is then solved for where the spread is small. What no form fits is called unknown.
"""

import dataclasses
import itertools
import math
import struct

CENTRES = ("none", "group", "batch")
SCALES = ("none", "group", "batch", "batch of the centred", "group, then batch")
PLACES = ("outside", "inside", "floor")
FIT = 2e-5  # of the largest value: float32 results of well-conditioned probes lie within 1e-6


@dataclasses.dataclass(frozen=True)
class Convention:
    """value = ((reward − centre) · factor − shift) / (scale with its epsilon), clamped."""

    centre: str
    leave_one_out: bool
    scale: str
    ddof: int = 0
    prior: int = 0  # rows of mean 0 and variance 1 that count before the first batch
    epsilon: float = 0.0
    place: str = "none"  # none, outside the root, inside it, a floor of the deviation, unread
    unread_below: float = 0.0  # none was seen at deviations above this one; smaller ones tell nothing
    clamp: float = math.inf

    def words(self):
        if self.centre == "none":
            top = "r"
        elif self.leave_one_out:
            top = "r − mean of the group's others"
        else:
            top = f"r − {self.centre} mean"
        if self.scale == "none":
            return top
        top = f"({top})" if " " in top else top
        if self.scale == "group, then batch":
            return f"{top} / group std, then whitened over the batch, ddof {self.ddof}{self._epsilon(', ')}"
        of = {"group": "group std", "batch": "batch std", "batch of the centred": "batch std of r − mean"}[self.scale]
        text = f"{top} / {of}, ddof {self.ddof}{self._epsilon(', ')}"
        if self.prior:
            text += f"; a prior of {self.prior} row (mean 0, variance 1)"
        return text + (f"; clamped to ±{self.clamp:g}" if self.clamp < math.inf else "")

    def _epsilon(self, between):
        seen = f"no ε at deviations above {self.unread_below:.3g}" if self.unread_below else "no ε"
        return between + {
            "none": seen, "outside": f"+ {self.epsilon:g}", "inside": f"ε {self.epsilon:g} inside the root",
            "floor": f"at least {self.epsilon:g}",
            "unread": "ε not read" + (f" (none at deviations above {self.unread_below:.3g})" if self.unread_below else ""),
        }[self.place]  # fmt: skip


@dataclasses.dataclass
class Statistics:
    """Of each row: what is subtracted, what multiplies, what is subtracted then, and the deviation without its epsilon."""

    centre: list
    factor: list
    shift: list
    sigma: list


def moments(values, ddof):
    """(n, mean, variance) in two passes."""
    n = len(values)
    mean = math.fsum(values) / n if n else 0.0
    squares = math.fsum((v - mean) ** 2 for v in values)
    return n, mean, squares / (n - ddof) if n > ddof else math.nan


def merged(a, b):
    """Two (n, mean, variance) as one (Chan et al. 1983), variance times n being the sum of squares."""
    n = a[0] + b[0]
    if n == 0:
        return a
    delta = b[1] - a[1]
    return n, a[1] + delta * b[0] / n, (a[2] * a[0] + b[2] * b[0] + delta**2 * a[0] * b[0] / n) / n


def running(how, history, ddof=None):
    """(n, mean, variance) after the batches of `history`, each merged as it comes."""
    state = (how.prior, 0.0, 1.0)
    for batch in history:
        state = merged(state, moments(batch, how.ddof if ddof is None else ddof))
    return state


def statistics(how, rewards, groups, before=()):
    """`before`: the rewards of earlier batches, for a function that remembers them."""
    n = len(rewards)
    whole = running(how, [*before, rewards])
    members = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    of_group = {g: moments([rewards[i] for i in rows], how.ddof) for g, rows in members.items()}
    centre = {"none": [0.0] * n, "batch": [whole[1]] * n, "group": [of_group[g][1] for g in groups]}[how.centre]
    factor = [1.0] * n
    if how.leave_one_out:
        sizes = [of_group[g][0] for g in groups]
        factor = [size / (size - 1) if size > 1 else math.nan for size in sizes]
    shift, sigma = [0.0] * n, [1.0] * n
    if how.scale == "group":
        sigma = [math.sqrt(of_group[g][2]) for g in groups]
    elif how.scale == "batch":
        sigma = [math.sqrt(whole[2])] * n
    elif how.scale != "none":
        if how.scale == "group, then batch":
            factor = [f / math.sqrt(of_group[g][2]) if of_group[g][2] > 0 else math.nan for f, g in zip(factor, groups)]
        _, mean, variance = moments([(r - c) * f for r, c, f in zip(rewards, centre, factor)], how.ddof)
        shift, sigma = [mean] * n, [math.sqrt(variance)] * n
    return Statistics(centre, factor, shift, sigma)


def denominator(how, sigma):
    if how.scale == "none":
        return 1.0
    if how.place == "outside":
        return sigma + how.epsilon
    if how.place == "inside":
        return math.sqrt(sigma * sigma + how.epsilon)
    return max(sigma, how.epsilon) if how.place == "floor" else sigma


def values(how, rewards, by):
    """The convention's values with these statistics."""
    out = []
    for r, c, f, s, sigma in zip(rewards, by.centre, by.factor, by.shift, by.sigma):
        below = denominator(how, sigma)
        value = ((r - c) * f - s) / below if below else math.nan
        out.append(max(-how.clamp, min(how.clamp, value)) if value == value else value)
    return out


def predict(how, rewards, groups, before=()):
    return values(how, rewards, statistics(how, rewards, groups, before))


def single(value):
    """The nearest float32, so that a probe is what the function sees."""
    return struct.unpack("f", struct.pack("f", value))[0]


#: fixed probes: groups of one size with means and spreads of their own; no symmetry, no equal values
def probe(groups, size, scale):
    rewards, of = [], []
    for g in range(groups):
        for k in range(size):
            angle = 12.9898 * (g + 1) + 78.233 * (k + 1) + 0.37 * (g + 1) * (k + 1)
            rewards.append(single(scale * ((0.6 + 0.35 * g) * math.sin(angle * 43.7585) + 0.9 * math.cos(2.1 * g + 0.4))))
            of.append(g)
    return rewards, of


def close(seen, expected, fit=FIT):
    if len(seen) != len(expected) or not all(map(math.isfinite, seen)) or not all(map(math.isfinite, expected)):
        return False
    largest = max(map(abs, expected))
    return all(abs(a - b) <= fit * largest for a, b in zip(seen, expected))


def forms():
    """Simplest first, so that of two forms that say the same the simpler one is taken."""
    for leave, prior, centre, scale, ddof in itertools.product((False, True), (0, 1), CENTRES, SCALES, (0, 1)):
        if (leave and centre != "group") or (prior and "batch" not in (centre, scale)) or (prior and centre == "group"):
            continue
        if (scale == "none" and ddof) or (scale in ("batch of the centred", "group, then batch") and centre != "group"):
            continue
        yield Convention(centre, leave, scale, ddof, prior)


def read(function, grouped):
    """The Convention of `function(rewards, groups)`, or None and the reason in words.

    `grouped`: whether it knows groups; one that does not is given one group. Throws what the function throws.
    """
    sizes = ((6, 4), (3, 8)) if grouped else ((1, 24), (1, 7))
    large = [probe(*size, 1e6) for size in sizes]
    seen = [function(*rows) for rows in large]
    fitting = [how for how in forms() if all(close(s, predict(how, *rows)) for s, rows in zip(seen, large))]
    if not grouped:
        fitting = [how for how in fitting if how.centre != "group" and how.scale in ("none", "batch")]
    if not fitting:
        fitting = [how for how in (with_second_epsilon(function, how, large, seen) for how in forms()) if how]
    if not fitting:
        return None, "none of the known forms"
    if fitting[0].scale == "none" or fitting[0].epsilon:
        return fitting[0], ""
    for how in fitting:
        epsilon = read_epsilon(function, how, grouped)
        if epsilon is not None:
            return clamped(function, dataclasses.replace(how, **epsilon)), ""
    return clamped(function, dataclasses.replace(fitting[0], place="unread")), ""


def with_second_epsilon(function, how, large, seen):
    """Values whitened twice have a deviation of 1 before the second: its epsilon shows at any size of the rewards."""
    if how.scale != "group, then batch":
        return None
    sigma, below = measured(function, how, large[0])
    how = dataclasses.replace(how, place="outside", epsilon=float(f"{below - sigma:.2g}"))
    fits = how.epsilon > 0 and all(close(s, predict(how, *rows)) for s, rows in zip(seen, large))
    return how if fits else None


def measured(function, how, rows):
    """(deviation, denominator) of the group that reaches farthest: the denominator from its two extreme rows."""
    rewards, groups = rows
    out, by = function(rewards, groups), statistics(how, rewards, groups)
    last = [i for i, g in enumerate(groups) if g == groups[-1]]
    low, high = min(last, key=lambda i: rewards[i]), max(last, key=lambda i: rewards[i])
    spread = out[high] - out[low]
    if not math.isfinite(spread) or spread == 0:
        return None
    return by.sigma[high], (rewards[high] - rewards[low]) * by.factor[high] / spread


def probed(function, how, grouped):
    """(deviation, denominator) from 1e-18 to 100; each group's mean is 0, since a common mean would drown a small spread."""
    sizes = ((6, 4), (3, 8)) if grouped else ((1, 4096), (1, 1024)) if how.prior else ((1, 24), (1, 7))
    for size in sizes:
        base, of = probe(*size, 1.0)
        by = statistics(Convention("group", False, "none"), base, of)
        for power in range(-36, 5):
            pair = measured(function, how, ([single(10 ** (power / 2) * (r - c)) for r, c in zip(base, by.centre)], of))
            if pair:
                yield pair


def read_epsilon(function, how, grouped):
    """Place and epsilon: the one place at which the scales give one epsilon; None if there is no such place.

    A function that loses small variances to rounding strays where they are lost: there a fifth of the scales may.
    """
    pairs = sorted(probed(function, how, grouped))
    floored = [(sigma, below) for sigma, below in pairs if below > sigma * (1 + 1e-3)]
    if not floored:
        smallest = pairs[0][0]
        return {"place": "none", "unread_below": 0.0 if smallest < 1e-12 else smallest}
    solved = {
        "outside": [below - sigma for sigma, below in floored],
        "inside": [below**2 - sigma**2 for sigma, below in floored],
        "floor": [below for _, below in floored],
    }
    least = min(below for _, below in floored)
    one = {}
    for place in PLACES:
        middle = sorted(solved[place])[len(floored) // 2]
        near = [abs(e - middle) <= 0.01 * abs(middle) for e in solved[place]]
        telling = [ok for ok, (sigma, _) in zip(near, floored) if 0.1 * least <= sigma <= 10 * least]
        if telling and all(telling) and sum(near) >= 0.8 * len(near):
            one[place] = middle
    if len(one) == 1:
        return {"place": next(iter(one)), "epsilon": float(f"{next(iter(one.values())):.3g}")}
    above = max(sigma for sigma, _ in floored)
    return {"place": "unread", "unread_below": float(f"{above:.1g}")} if not one and above < 0.02 else None


def clamped(function, how):
    """The same with its clamp: one row far from 63 others would be 7.9 deviations from their mean."""
    rewards, groups = probe(1, 63, 1.0)
    rewards, groups = [single(r * 1e3) for r in rewards] + [1e6], groups + [0]
    seen, expected = function(rewards, groups), predict(how, rewards, groups)
    if how.scale == "none" or close(seen, expected, 1e-3) or not all(map(math.isfinite, seen)):
        return how
    limit = dataclasses.replace(how, clamp=float(f"{max(seen):.6g}"))
    return limit if close(seen, predict(limit, rewards, groups), 1e-3) else how


def group_of_one(function, how, grouped):
    """In words: what a group (a batch, where it knows no groups) of one row gives."""
    try:
        seen = function([3.0, -2.0, 5.0, 0.5], [0, 1, 2, 3])[0] if grouped else function([3.0], [0])[0]
    except Exception as error:  # noqa: BLE001 - whatever the library throws is the answer
        return f"error: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    if math.isnan(seen):
        return "NaN"
    if abs(seen) < 1e-6:
        return "0"
    return "the raw reward" if abs(seen - 3.0) < 1e-4 else f"{seen:.4g} for 3"


def missing_reward(function, how, grouped):
    """In words: what one NaN among the rewards does."""
    rewards, groups = probe(*((6, 4) if grouped else (1, 24)), 1.0)
    hit = 5
    given = list(rewards)
    given[hit] = math.nan
    try:
        seen = function(given, groups)
    except Exception as error:  # noqa: BLE001
        return f"error: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    lost = [i for i, v in enumerate(seen) if math.isnan(v)]
    own = [i for i, g in enumerate(groups) if g == groups[hit]]
    if len(lost) == len(seen):
        return "all NaN"
    if grouped and lost == own:
        return "its group NaN"
    others = [i for i in range(len(seen)) if i != hit]
    left = [seen[i] for i in others]
    if set(lost) <= {hit} and how is not None:
        without = predict(how, [rewards[i] for i in others], [groups[i] for i in others])
        zeroed = predict(how, [0.0 if i == hit else r for i, r in enumerate(rewards)], groups)
        own_value = "NaN" if lost else f"{seen[hit]:.3g}"
        if close(left, without, 1e-2):
            return f"its row {own_value}, the others as if it were not there"
        if close(left, [rewards[i] for i in others]):
            return f"its row {own_value}, the others unscaled"
        if close(left, [zeroed[i] for i in others], 1e-2):
            return f"its row {own_value}, the others as if it were 0"
    return f"{len(lost)} of {len(seen)} NaN"
