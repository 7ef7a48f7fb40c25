"""Which statistic of which rows would give what several ranks were seen to compute."""

import math

import conventions
from conventions import Statistics

TOLERANCE = 1e-4  # of the largest value, between a guess in float64 and float32 results


def cut(rows, counts):
    """`rows` split into consecutive parts of these lengths."""
    parts, at = [], 0
    for count in counts:
        parts.append(rows[at : at + count])
        at += count
    return parts


def even(rows, world):
    return [rows // world] * world


def uneven(rows, world):
    """Parts of 1 to several times the mean, all different in kind, none empty; the same for ever."""
    weights = [1 + (3 * rank + 2) % (world + 2) for rank in range(world)]
    counts = [max(1, rows * w // sum(weights)) for w in weights]
    counts[-1] += rows - sum(counts)
    return counts


def one_empty(rows, world):
    """The second rank has no row."""
    counts = [rows // (world - 1)] * world
    counts[1] = 0
    counts[-1] += rows - sum(counts)
    return counts


def joined(parts):
    return Statistics(*([v for part in parts for v in getattr(part, name)] for name in ("centre", "factor", "shift", "sigma")))


def guesses(how, batches, counts):
    """(name, values) of known mistakes. `batches`: (rewards, groups) in order, the last one judged; `counts`: rows of each rank."""
    rewards, groups = batches[-1]
    earlier = [rows for rows, _ in batches[:-1]]
    n = len(rewards)
    whole = conventions.statistics(how, rewards, groups, earlier)
    yield from with_local(how, batches, counts, whole)
    true = conventions.values(how, rewards, whole)
    if how.scale != "none":
        yield "not scaled at all", conventions.values(how, rewards, Statistics(whole.centre, whole.factor, whole.shift, [1.0] * n))
    if how.centre == "batch" and how.scale in ("none", "batch"):
        yield "the mean of the ranks' means", of_means(how, batches, counts, whole)
    shifted = [v for rank, count in enumerate(counts) for v in true[rank * count : (rank + 1) * count]]
    if len(shifted) == n and shifted != true:
        yield "the advantages of other rows (rank × own rows as offset)", shifted


def with_local(how, batches, counts, whole):
    rewards, groups = batches[-1]
    history = [cut(rows, counts) for rows, _ in batches[:-1]]
    parts = [(rank, r, g) for rank, (r, g) in enumerate(zip(cut(rewards, counts), cut(groups, counts))) if r]
    each = [conventions.statistics(how, r, g, [h[rank] for h in history]) for rank, r, g in parts]
    own = joined(each)
    yield own_name(how, len(batches)), conventions.values(how, rewards, own)
    yield "each rank's own mean", conventions.values(how, rewards, Statistics(own.centre, own.factor, own.shift, whole.sigma))
    yield "each rank's own deviation", conventions.values(how, rewards, Statistics(whole.centre, whole.factor, whole.shift, own.sigma))


def own_name(how, batches):
    if batches > 1:
        return "each rank's own history"
    if how.centre == "group" and how.scale in ("none", "group"):
        return "groups cut at the ranks' borders"
    return "each rank's own mean" if how.scale == "none" else "each rank's own mean and deviation"


def of_means(how, batches, counts, whole):
    """Values where the ranks' means are averaged as if all ranks had as many rows."""
    state = (how.prior, 0.0, 1.0)
    for rows, _ in batches:
        means = [conventions.moments(part, 0)[1] for part in cut(rows, counts) if part]
        count, _, variance = conventions.moments(rows, how.ddof)
        state = conventions.merged(state, (count, math.fsum(means) / len(means), variance))
    rewards, n = batches[-1][0], len(batches[-1][0])
    sigma = [math.sqrt(state[2])] * n if how.scale == "batch" else whole.sigma
    return conventions.values(how, rewards, Statistics([state[1]] * n, whole.factor, whole.shift, sigma))


def explain(how, batches, counts, seen, alone=None):
    """The names of what fits `seen` (all rows, in order), the simplest first. `alone`: each rank's values had it been by itself.

    A guess that lies no farther from one process's values than the tolerance explains nothing.
    """
    named = []
    if alone is not None and same(seen, alone):
        named.append("as if each rank were alone" if how is None else own_name(how, len(batches)))
    if how is None or not all(map(math.isfinite, batches[-1][0])):
        return named
    if all(v != v for v in seen) and 0 in counts:
        return ["the moments of no rows (0/0) reach every rank"]
    true = conventions.predict(how, *batches[-1], [rows for rows, _ in batches[:-1]])
    for name, guess in guesses(how, batches, counts):
        if conventions.close(seen, guess, TOLERANCE) and not conventions.close(guess, true, 2 * TOLERANCE) and name not in named:
            named.append(name)
    return named


def same(a, b):
    """Every bit, where NaN is one value."""
    return len(a) == len(b) and all(x == y or (x != x and y != y) for x, y in zip(a, b))


def flipped(reference, seen):
    """The share of rows whose sign changed, of those that have one in the reference."""
    floor = 1e-6 * max(map(abs, reference), default=0.0)
    signed = [(a, b) for a, b in zip(reference, seen) if abs(a) > floor]
    return sum(a * b < 0 for a, b in signed) / len(signed) if signed else 0.0


def judge(how, batches, reference, seen):
    """bits, rounding or differs, with the largest difference; NaN must stand in the same rows.

    Rounding: 64 roundings of the largest value, and of its numerator and denominator, which cancellation makes larger by the largest reward
    over the smallest denominator.
    """
    if len(reference) != len(seen):
        return {"verdict": "differs", "words": f"{len(seen)} values for {len(reference)} rows"}
    if [math.isnan(v) for v in reference] != [math.isnan(v) for v in seen]:
        there, here = sum(map(math.isnan, seen)), sum(map(math.isnan, reference))
        return {"verdict": "differs", "words": f"{there} of {len(seen)} values NaN, {here} in one process"}
    pairs = [(a, b) for a, b in zip(reference, seen) if not math.isnan(a)]
    if all(a == b for a, b in pairs):
        return {"verdict": "bits"}
    most = max(abs(a - b) for a, b in pairs)
    largest = max(abs(a) for a, _ in pairs)
    ulp = 2.0 ** (math.floor(math.log2(largest)) - 23) if largest > 0 else 2.0**-149
    allowed = 64 * 2.0**-24 * (largest + (1 + largest) * amplified(how, batches))
    facts = {"largest_difference": most, "ulp": most / ulp, "flips": flipped([a for a, _ in pairs], [b for _, b in pairs])}
    return {"verdict": "rounding" if most <= allowed else "differs", **facts}


def amplified(how, batches):
    """The largest reward over the smallest denominator: what one rounding of a reward can become."""
    rewards, groups = [r for r in batches[-1][0] if not math.isnan(r)], [g for r, g in zip(*batches[-1]) if not math.isnan(r)]
    most = max(map(abs, rewards), default=0.0)
    if how is None:
        return most
    sigma = [s for s in conventions.statistics(how, rewards, groups, [rows for rows, _ in batches[:-1]]).sigma if not math.isnan(s)]
    below = min((conventions.denominator(how, s) for s in sigma), default=1.0)
    return most / below if below > 0 else most
