"""Writes verdicts.json and verdicts/NAME/{a,b}: pairs of tiny runs with what `lockstep compare` must say of them.

    verdicts.py [--check] [--lockstep PROGRAM]

--check writes nothing: it fails if the files are not, byte for byte, what would be written. --lockstep: asks that program about each
pair, and fails where it says something else.
"""

import argparse
import filecmp
import json
import math
import pathlib
import shutil
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402

from conformance import said_by  # noqa: E402
from tiny import Tiny, added, dyadic, norm_of, orthogonal, scaled, tokens  # noqa: E402
from trace_writer import Placement, mix, tensor_hash  # noqa: E402

HERE = pathlib.Path(__file__).parent
WORD = (1 << 64) - 1
UNJUDGED = "inconclusive"  # of two layouts in which nothing is wrong: without repeats no envelope is measured


class Pair:
    """Run B against run A: what is wrong, or None. `rank`: that is wrong alone. `kept`: stands in verdicts/, for other tracers."""

    def __init__(self, name, a, b, cause=None, step=None, phase=None, rank=None, verdict=None, refused=None):
        self.name, self.a, self.b, self.kept = name, a, b, True
        said = verdict or ("divergent" if cause else UNJUDGED)
        self.expected = {"name": name, "verdict": said}
        if refused:
            self.expected = {"name": name, "refused": refused, "exit_code": 2}
        for key, value in (("step", step), ("phase", phase), ("rank", rank), ("cause", cause)):
            if value is not None:
                self.expected[key] = value


def fault(name, cause, a, b, phase, step=1, rank=None):
    return Pair(name, a, b, cause, step, phase, rank)


def on(rank, change):
    """A hook of what ranks hold: one of them has something else."""

    def hook(values, *more):
        values = list(values)
        values[rank] = change(values[rank])
        return values

    return hook


def every(change):
    return lambda values, *more: [change(v) for v in values]


ONE, TWO = Tiny(), Tiny(world=2)
# Of one step: two layouts round otherwise, so that gradients and losses of later steps are not judged against each other.
FIRST = dict(at=0, steps=1)
FIRST_OF_ONE, FIRST_OF_TWO = Tiny(**FIRST), Tiny(world=2, **FIRST)


# --- accumulation ---


def by_rows(scale, piece, own, run):
    rows = sum(len(p.ids) for p in own)
    return torch.full_like(scale, len(piece.ids) / rows / float(piece.counts.sum()))


def last_alone(reduced, local, parts, run):
    last = [rank[-1][-1] for rank in parts]
    mean = scaled(added(*last), 1 / run.world)
    return [added(r, own, scaled(mean, -1)) for r, own in zip(reduced, last)]


def of_a_use(reduced, local, parts, run):
    """Half of each rank's gradient of body.weight, that of one of two uses, is not reduced: its rows 0 and 1."""
    own = [g["body.weight"].clone() for g in local]
    for g in own:
        g[2:] *= 0.25
    mean = sum(own) / run.world
    return [{**r, "body.weight": r["body.weight"] + o - mean} for r, o in zip(reduced, own)]


def in_bfloat16(total, micro):
    sums = {k: torch.zeros_like(v, dtype=torch.bfloat16) for k, v in total.items()}
    for part in micro:
        sums = {k: (v.double() + part[k]).bfloat16() for k, v in sums.items()}
    return {k: v.double() for k, v in sums.items()}


def accumulation():
    whole, several = Tiny(micro=2, batch=8, samples=16), Tiny(world=2, micro=2, batch=8, samples=16)
    a, b = whole.but(**FIRST), several.but(**FIRST)
    yield Pair("accumulation", whole, several)
    yield fault("micro-steps-weighted-alike", "micro-steps-weighted-alike", a, b.but(scale=by_rows), "loss", step=0)
    yield fault("micro-steps-weighted-alike-later", "micro-steps-weighted-alike", several, several.but(scale=by_rows), "loss")
    yield fault("only-last-micro-step", "only-last-micro-step", a, b.but(sum=lambda total, micro: micro[-1]), "local gradients", step=0)
    yield fault("last-micro-step-not-reduced", "last-micro-step-not-reduced", whole, several.but(reduced=last_alone), "reduced gradients")
    yield fault("one-use-not-reduced", "one-use-not-reduced", ONE, TWO.but(reduced=of_a_use), "reduced gradients")
    yield fault("accumulated-in-low-precision", "accumulated-in-low-precision", a, b.but(sum=in_bfloat16), "local gradients", step=0)
    wrong = b.but(scale=lambda scale, *more: scale * 2 / 3)
    yield fault("normalised-by-another-window", "normalised-by-another-window", a, wrong, "loss", step=0)


# --- loss ---


def own_means(means, by_rank):
    return [v.mean(0) for v in by_rank]


def losses():
    a, b = Tiny(balance=0.5), Tiny(world=2, balance=0.5)
    yield Pair("named-losses", a, b)

    def less(factor):
        def of_parts(named, rank, run):
            return {**named, "balance": scaled(named["balance"], factor)}

        return dict(named=of_parts, aux=lambda aux, run: aux * factor)

    first = a.but(**FIRST)
    yield fault("auxiliary-loss-over-world", "auxiliary-loss-over-world", first, b.but(**FIRST, **less(0.5)), "loss", step=0)
    detached = b.but(**FIRST, named=less(0)["named"])
    yield fault("auxiliary-loss-detached", "auxiliary-loss-detached", first, detached, "local gradients", step=0)
    grouped = Tiny(world=4, declared={"groups": {"context 0": [0, 1], "context 1": [2, 3]}})
    yield Pair("groups", ONE, grouped)
    wrong = grouped.but(scale=lambda scale, *more: scale * 2)
    yield fault("counted-over-wrong-group", "counted-over-wrong-group", grouped, wrong, "loss")
    wrong = FIRST_OF_TWO.but(scale=lambda scale, *more: scale * 1.375)
    yield fault("constant-factor", "constant-factor", FIRST_OF_ONE, wrong, "loss", step=0)
    a, b = Tiny(counted=True), Tiny(world=2, counted=True)
    yield Pair("padding", a, b)
    yield fault("mask-ignored", "mask-ignored", a.but(**FIRST), b.but(**FIRST, bare=lambda value: True), "loss", step=0)
    a, b = Tiny(centred="norm.running_mean"), Tiny(world=2, centred="norm.running_mean")
    yield Pair("statistics-of-all-rows", a, b)
    yield fault("batch-norm-local", "batch-norm-local", a.but(**FIRST), b.but(**FIRST, means=own_means), "loss", step=0)


# --- parts of tensors ---

ROWS = {"body.weight": 0, "body.bias": 0, "head.weight": 0}
COLUMNS = {"body.weight": 1, "head.weight": 1}


def norm_with(replicas):
    """Squares of parts, and `replicas` times those of what every rank holds."""

    def hook(norms, reduced, run):
        whole = {k: v for k, v in reduced[0].items() if k not in run.shards}
        parts = {k: v for k, v in reduced[0].items() if k in run.shards}
        return [math.sqrt(norm_of(parts) ** 2 + replicas * norm_of(whole) ** 2)] * run.world

    return hook


def norm_of_own(norms, reduced, run):
    return [norm_of({k: run.part(k, v, r)[0].double() for k, v in reduced[r].items()}) for r in range(run.world)]


def still(rank, name):
    """The rank's part of a parameter stays what it was."""

    def hook(params, before, run):
        params = [dict(p) for p in params]
        parts = list(params[0][name].tensor_split(run.world, run.shards[name]))
        parts[rank] = before[0][name].tensor_split(run.world, run.shards[name])[rank]
        for p in params:
            p[name] = torch.cat(parts, run.shards[name])
        return params

    return hook


def part_by_part(usual):
    def change(name, gradient):
        if gradient.dim() != 2:
            return usual(name, gradient)
        return torch.cat([orthogonal(part) for part in gradient.tensor_split(2, 0)])

    return change


def parts():
    by_rows, by_columns = Tiny(world=2, shards=ROWS), Tiny(world=2, shards=COLUMNS, placed=("body.bias",))
    yield Pair("parts-of-rows", ONE, by_rows)
    yield Pair("parts-of-columns", ONE, by_columns)
    yield Pair("parts-of-rows-three-ranks", Tiny(batch=6, samples=12), Tiny(batch=6, samples=12, world=3, shards=ROWS))
    for name, shards, placed in (("rows", ROWS, ()), ("columns", COLUMNS, ("body.bias",))):
        # Both ranks compute with their parts on the same rows, so that local gradients are in parts, too.
        same_rows = Tiny(world=2, group=2, shards=shards, placed=placed, local_shards=True, declared={"groups": {"tensor": [0, 1]}})
        yield Pair(f"tensor-parallel-{name}", ONE, same_rows)
    yield Pair("parts-of-rows-twice", by_rows, by_rows, verdict="identical")
    yield Pair("parts-of-rows-and-of-columns", by_rows, by_columns, verdict="identical")
    yield fault("replicated-counted-in-norm", "replicated-counted-in-norm", ONE, by_columns.but(norm=norm_with(2)), "gradient norm")
    yield fault("norm-of-own-shard", "norm-of-own-shard", ONE, by_rows.but(norm=norm_of_own), "gradient norm")
    yield fault("norm-of-sum", "norm-of-sum", ONE, TWO.but(norm=every(lambda n: 2 * n)), "gradient norm")
    yield fault("shard-not-updated", "shard-not-updated", ONE, by_rows.but(after=still(1, "body.weight")), "parameters", rank=1)
    wrong = by_columns.but(after=still(0, "head.weight"))
    yield fault("shard-not-updated-of-columns", "shard-not-updated", ONE, wrong, "parameters", rank=0)
    muon = {"name": "muon"}
    yield Pair("whole-matrices", Tiny(optimizer=muon), by_rows.but(optimizer=muon))
    wrong = by_rows.but(optimizer=muon, change=part_by_part, **FIRST)
    yield fault("update-of-a-shard", "update-of-a-shard", Tiny(optimizer=muon, **FIRST), wrong, "parameters", step=0)
    wider = by_rows.but(initial=every(lambda p: {**p, "body.weight": p["body.weight"] * math.sqrt(2)}), at=-1)
    yield fault("initial-scale-by-shard", "initial-scale-by-shard", ONE, wider, "parameters", step=-1)
    placed = Tiny(world=2, placed=("body.weight", "body.bias", "head.weight"))
    yield Pair("placed-as-replicated", ONE, placed)
    other = placed.but(initial=on(1, lambda p: {**p, "head.weight": dyadic((2, 4), 9)}), at=-1)
    yield fault("labelled-replicated-but-differs", "labelled-replicated-but-differs", ONE, other, "parameters", step=-1, rank=1)


# --- updates ---


def updates():
    groups = {"parameters": [{"prefix": "head.", "rate_factor": 4}]}
    a, b = Tiny(declared=groups, rate=1 / 16), Tiny(declared=groups, rate=1 / 16, world=2)
    yield Pair("parameter-groups", a, b)
    wrong = b.but(change=lambda usual: lambda name, gradient: gradient)
    yield fault("wrong-parameter-group", "wrong-parameter-group", a, wrong, "parameters")
    adam = {"name": "adam"}
    a, b = Tiny(optimizer=adam, rate=1 / 16), Tiny(optimizer=adam, rate=1 / 16, world=2)
    yield Pair("adam", a, b)
    wrong = b.but(count=lambda count: count + 1, at=0)
    yield fault("optimizer-counter-ahead", "optimizer-counter-ahead", a, wrong, "parameters", step=0)
    a, b = Tiny(averages=0.875, steps=3), Tiny(averages=0.875, steps=3, world=2)
    yield Pair("averages", a, b)
    wrong = b.but(decay=lambda decay: 0.5)
    yield fault("average-of-weights-differs", "average-of-weights-differs", a, wrong, "averaged weights")
    wrong = wrong.but(shards=ROWS)
    yield fault("average-of-parts-differs", "average-of-weights-differs", a, wrong, "averaged weights")
    yield fault("average-of-old-weights", "average-of-weights-differs", a, b.but(source=lambda now, old: old), "averaged weights")
    skips = every(lambda value: True)
    yield Pair("skipped-on-all-ranks", Tiny(skips=skips, once=True, steps=3), Tiny(skips=skips, once=True, steps=3, world=2))
    never = every(lambda value: False)
    alone = Tiny(skips=on(1, lambda value: True), once=True, steps=3, world=2)
    yield fault("skip-decided-alone", "skip-decided-alone", Tiny(skips=never, steps=3), alone, "control", rank=1)


# --- samples, inputs, random numbers ---


def scheduled(points):
    def more(w, rank, step, run):
        sigmas = torch.linspace(1, 0, points if step >= run.at else 4, dtype=torch.float64)
        w.tensor("control", "schedule/sigmas", sigmas, alike=True)

    return more


def stream(name, state, draws):
    """`state(rank, step)` is what the hash is of; at the fault `draws` takes the rows' usual number."""

    def more(w, rank, step, run):
        usual = 3 * len(run.ids_of(step)[rank])
        w.random(name, state(rank, step), draws(usual) if step >= run.at else usual)

    return more


def keyed(rank, step, run):
    return sum(mix(i + 1000 * step + 1) for i in run.ids_of(step)[rank]) & WORD


def dropout(factor):
    def more(w, rank, step, run):
        usual = 3 * len(run.ids_of(step)[rank])
        again = factor if step >= run.at else 1
        w.random("dropout", keyed(rank, step, run) * (1 if again == 1 else 3) & WORD, usual * again)

    return more


def labelled(parts, shifted=False):
    """Labels [rows, 8], of which each rank holds its share of places."""

    def more(w, rank, step, run):
        ids = run.ids_of(step)[rank]
        whole = torch.tensor([[mix(100 * i + p + 1) % 50 for p in range(8)] for i in ids])
        width = 8 // parts
        own = whole[:, rank * width : (rank + 1) * width].clone() if parts > 1 else whole
        if shifted and step >= run.at:
            own[:, -1] = -100
        placement = Placement(whole.shape, (0, rank * width)) if parts > 1 else None
        w.tensor("inputs", "labels", own.contiguous(), ids=ids, placement=placement)

    return more


def padded(width, wrong=False):
    """Labels of rows of other lengths, padded to `width` places."""

    def more(w, rank, step, run):
        ids = run.ids_of(step)[rank]
        whole = [[mix(100 * i + p + 1) % 50 if p < tokens(i) else -100 for p in range(width)] for i in ids]
        if wrong and step >= run.at and rank == 1:
            whole[0][1] = 77
        w.tensor("inputs", "labels", torch.tensor(whole), ids=ids)

    return more


def rows_of(other):
    """The rows of another step, partitioned as usual."""

    def hook(ids, step, run):
        rows = run.batch_of(other)
        return [rows[r :: run.world] for r in range(run.world)]

    return hook


def filled_up(ids, step, run):
    rows = sum((list(own) for own in ids), [])
    begin = run.batch_of(step - step % -(-run.samples // run.batch))
    rows += begin[: run.batch - len(rows)]
    return [rows[r :: run.world] for r in range(run.world)]


def times_world(ids, step, run):
    rows = run.batch_of(step) + run.batch_of(step + 1)
    return [rows[r :: run.world] for r in range(run.world)]


def forgotten_on_0(ids, step, run):
    per_epoch = -(-run.samples // run.batch)
    return [run.batch_of(step % per_epoch)[:: run.world], *ids[1:]]


def samples():
    a, b = Tiny(steps=3, samples=12, at=2, starts=False), Tiny(steps=3, samples=12, world=2, at=2, starts=False)
    yield fault("position-lost", "position-lost", a, b.but(ids=rows_of(0)), "samples", step=2)
    a, b = Tiny(steps=3, at=2, starts=False), Tiny(steps=3, at=2, world=2, starts=False)
    yield Pair("two-epochs", a, b)
    yield fault("set-epoch-forgotten-on-a-rank", "set-epoch-forgotten", a, b.but(ids=forgotten_on_0), "samples", step=2, rank=0)
    a, b = Tiny(steps=3, at=2, samples=11), Tiny(steps=3, at=2, samples=11, world=2)
    yield Pair("short-batch-at-epoch-end", a, b)
    yield fault("padding-at-epoch-end", "padding-at-epoch-end", a, b.but(ids=filled_up), "samples", step=2)
    a, b = FIRST_OF_ONE.but(samples=16), FIRST_OF_TWO.but(samples=16)
    yield fault("global-batch-times-world", "global-batch-times-world", a, b.but(ids=times_world), "samples", step=0)
    yield Pair("schedules", ONE.but(more=scheduled(4)), TWO.but(more=scheduled(4)))
    yield fault("schedules-differ", "schedules-differ", ONE.but(more=scheduled(4)), TWO.but(more=scheduled(5)), "control")
    context = {"groups": {"context": [0, 1]}}
    whole, split = ONE.but(more=labelled(1)), Tiny(world=2, group=2, declared=context)
    yield Pair("labels-in-parts", whole, split.but(more=labelled(2)))
    wrong = split.but(more=labelled(2, shifted=True))
    yield fault("labels-shifted-at-shard-edge", "labels-shifted-at-shard-edge", whole, wrong, "inputs")


def random_numbers():
    by_rank = {"streams": {"process/dropout": "rank"}}
    state = lambda rank, step: mix(7 + rank + 100 * step)  # noqa: E731
    usual = lambda draws: draws  # noqa: E731
    a = Tiny(declared=by_rank, more=stream("process/dropout", state, usual))
    b = a.but(world=2)
    yield Pair("generators", a, b)
    yield Pair("generators-twice", b, b, verdict="identical")
    same = lambda rank, step: mix(7 + 100 * step)  # noqa: E731
    wrong = b.but(more=stream("process/dropout", same, usual), at=0)
    yield fault("same-generator-on-all-ranks", "same-stream-on-all-ranks", a, wrong, "random", step=0)
    stuck = lambda rank, step: mix(7 + rank + 100 * (0 if rank == 1 else step))  # noqa: E731
    wrong = b.but(more=stream("process/dropout", stuck, usual))
    yield fault("generator-not-advanced", "stream-not-advanced", b, wrong, "random", rank=1)
    a, b = ONE.but(more=dropout(1)), TWO.but(more=dropout(1))
    yield Pair("streams-by-sample", a, b)
    turned = every(lambda g: scaled(g, 1.5, "body."))
    yield fault("masks-drawn-again", "masks-drawn-again", a, b.but(more=dropout(2), local=turned), "random")


# --- messages and evaluation ---


def messages(change=""):
    """Two activations from rank 0 to rank 1, two gradients back, and pieces that both exchange."""

    def more(w, rank, step, run):
        wrong = change if step >= run.at else ""
        for name, sender in (("activation", 0), ("gradient", 1)):
            for k in range(2):
                hash_ = tensor_hash(dyadic((3, 2), step, sender, k).float())
                last = (name, k) == ("activation", 1)
                if wrong == "lost" and last and rank == 1:
                    continue
                if wrong == "changed" and last and rank == 1:
                    hash_ ^= 1 << 17
                op = "send" if rank == sender else "recv"
                w.collective(op, "pipeline", name, hash_, hash_, (3, 2), root=1 - rank)
        pieces = [[tensor_hash(dyadic((2, 2), step, a, b, 5).float()) for b in range(2)] for a in range(2)]
        sent, got = sum(pieces[rank]) & WORD, sum(p[rank] for p in pieces) & WORD
        if wrong == "exchanged" and rank == 0:
            got = 2 * pieces[1][0] & WORD
        w.collective("all_to_all", "expert", "tokens", sent, got, (4, 2))

    return more


def evaluated(held, wrong=None):
    """`held[rank]`: the held-out samples that the rank evaluates; at the fault `wrong[rank]`."""

    def write(w, rank, step, run):
        ids = (wrong if wrong and step >= run.at else held)[rank]
        params = run.params[rank]
        x = torch.stack([dyadic((4,), 11, i) for i in ids])
        h = x @ params["body.weight"].t() + params["body.bias"]
        w.tensor("evaluation", "held_out", (h * h).sum(1).float(), ids=ids)

    return write


def exchanges():
    b = TWO.but(more=messages())
    yield Pair("messages", ONE, b)
    yield fault("message-changed", "message-corrupted", ONE, TWO.but(more=messages("changed")), "collective", rank=1)
    yield fault("receive-missing", "collective-missing", ONE, TWO.but(more=messages("lost")), "collective", rank=1)
    yield fault("pieces-changed", "message-corrupted", ONE, TWO.but(more=messages("exchanged")), "collective")
    one, two = ONE.but(evaluated=evaluated([[0, 1, 2, 3, 4]])), [[0, 2, 4], [1, 3]]
    yield Pair("evaluation-in-parts", one, TWO.but(evaluated=evaluated(two)))
    filled = TWO.but(evaluated=evaluated(two, [[0, 2, 4], [1, 3, 0]]))
    yield fault("evaluated-samples-differ", "evaluated-samples-differ", one, filled, "evaluation")


# --- what is no difference, and what is ---


def exchanged(local, run):
    """Each rank has the gradients of the other's rows: two forms of one loss may part it otherwise."""
    return local[::-1]


def one_sided(local, run):
    """What rank 0 has more, rank 1 has less."""
    more = {k: torch.full_like(v, 0.25) for k, v in local[0].items()}
    return [added(local[0], more), added(local[1], scaled(more, -1))]


def logged(losses, run):
    return [(2 * loss[0] + 1, *loss[1:]) for loss in losses]


def of_another_order(seed, ranks):
    """`ranks` take the rows of another permutation of the data."""

    def hook(ids, step, run):
        order = sorted(range(3, 3 + 7 * run.samples, 7), key=lambda i: mix(i + seed))
        rows = order[step * run.batch : (step + 1) * run.batch]
        return [rows[r :: run.world] if r in ranks else own for r, own in enumerate(ids)]

    return hook


def rooted(roots):
    """A broadcast whose root the ranks name."""

    def more(w, rank, step, run):
        hash_ = tensor_hash(dyadic((3, 2), step, 6).float())
        w.collective("broadcast", "world", "of its owner", hash_, hash_, (3, 2), root=roots[rank] if step >= run.at else roots[0])

    return more


def of_owner(rates):
    """The rate of a parameter with a rate of its own, on the ranks that name it."""

    def more(w, rank, step, run):
        if rank in rates:
            w.scalar("control", "learning_rate/body.bias", rates[rank])

    return more


def all_hold(params):
    return [dict(params) for _ in range(2)]


def ways_of_other_layouts():
    """What another program may do in a way of its own where its ranks are others, and the mistakes that look like it."""
    one, two = ONE.but(more=rooted([0])), TWO.but(more=rooted([1, 1]))
    yield Pair("root-of-another-layout", one, two)
    yield fault("root-of-a-rank", "wrong-root", one, TWO.but(more=rooted([1, 0])), "collective")
    halved = every(lambda loss: tuple(0.5 * each for each in loss))
    unseen = dict(omits=("local gradients", "reduced gradients"))
    yield Pair("loss-in-shares", FIRST_OF_ONE, FIRST_OF_TWO.but(loss=halved))
    yield Pair("loss-in-shares-alone", FIRST_OF_ONE.but(**unseen), FIRST_OF_TWO.but(loss=halved, **unseen))
    wrong = FIRST_OF_TWO.but(scale=lambda scale, *more: scale / 2)
    yield fault("loss-over-world", "loss-over-world", FIRST_OF_ONE, wrong, "loss", step=0)
    not_reduced = lambda reduced, local, parts, run: local  # noqa: E731
    mean = lambda params, *more: all_hold(scaled(added(*params), 0.5))  # noqa: E731
    yield Pair("parameters-averaged", ONE, TWO.but(at=0, reduced=not_reduced, after=mean))
    wrong = TWO.but(reduced=not_reduced, after=lambda params, *more: all_hold(params[0]))
    yield fault("parameters-of-rank-0", "gradient-not-reduced", ONE, wrong, "reduced gradients")
    server = Tiny(world=2, skips=on(1, lambda value: True), after=lambda params, *more: all_hold(params[0]), at=0)
    yield Pair("updated-by-another-rank", Tiny(skips=every(lambda value: False)), server)
    owned = TWO.but(owners={"body.bias": 0})
    yield Pair("rate-of-an-owner", ONE.but(more=of_owner({0: 0.5})), owned.but(more=of_owner({0: 0.5})))
    wrong = TWO.but(more=of_owner({0: 0.5}), at=0)
    yield fault("rate-of-a-rank", "rate-differs", ONE.but(more=of_owner({0: 0.5})), wrong, "control", step=0, rank=1)
    ids = lambda ids, step, run: [run.batch_of(step)] * run.world  # noqa: E731
    yield Pair("whole-batch-on-all-ranks", ONE, TWO.but(at=0, ids=ids))
    yield fault("one-shard-on-all-ranks", "shards-identical", ONE, TWO.but(ids=lambda ids, *more: [ids[0]] * 2), "samples")
    yield Pair("inside-a-module", TWO, TWO.but(inside="net."), verdict="identical")
    yield Pair("inside-a-module-of-another-layout", ONE.but(inside="net."), TWO)
    wrong = TWO.but(inside="net.", reduced=not_reduced)
    yield fault("inside-a-module-not-reduced", "gradient-not-reduced", ONE, wrong, "reduced gradients")


def owners(stale):
    """Each rank's optimizer moves every so manyth parameter and sends it; of the others it has state that stands still, or none."""

    def own(number, rank, run):
        return number % run.world == rank

    def state(kept, rank, run):
        mine = {k: v for n, (k, v) in enumerate(kept.items()) if own(n, rank, run)}
        return {**{k: 0 * v + rank for k, v in kept.items()}, **mine} if stale else mine

    def sent(w, rank, step, run):
        for n in range(3):
            hash_ = mix(100 * step + n)
            w.collective("broadcast", "world", "float32", hash_ if own(n, rank, run) else mix(hash_ + rank), hash_, (4,), root=n % run.world)

    return dict(state=state, more=sent)


def owned():
    adam = Tiny(optimizer={"name": "adam"}, rate=1 / 16, steps=3, at=0)
    for name, hooks in (("owners", owners(False)), ("owners-with-old-state", owners(True))):
        one, two = adam.but(**hooks), adam.but(world=2, **hooks)
        yield Pair(name, one, two)
        yield Pair(f"{name}-twice", two, two, verdict="identical")
        wrong = two.but(at=1, reduced=lambda reduced, local, parts, run: local)
        yield fault(f"{name}-not-reduced", "gradient-not-reduced", one, wrong.but(state=hooks["state"]), "reduced gradients")


def ways():
    unseen = ("samples", "loss", "local gradients")
    not_reduced = lambda reduced, local, parts, run: local  # noqa: E731
    for name, a in (("two-layouts", ONE), ("one-layout", TWO)):
        same = "within_envelope" if a is TWO else UNJUDGED
        yield Pair(f"not-recorded-{name}", a, TWO.but(omits=unseen), verdict=same)
        wrong = TWO.but(omits=unseen, reduced=not_reduced)
        yield Pair(f"not-recorded-not-reduced-{name}", a, wrong, "unexplained", 1, "reduced gradients", verdict="divergent")
        yield Pair(f"logged-loss-{name}", a.but(**FIRST), TWO.but(**FIRST, loss=logged), verdict=same)
    yield Pair("labels-padded-otherwise", ONE.but(more=padded(8)), TWO.but(more=padded(6)))
    wrong = TWO.but(more=padded(6, wrong=True))
    yield fault("labels-padded-otherwise-and-wrong", "unexplained", ONE.but(more=padded(8)), wrong, "inputs", rank=1)
    yield Pair("random-not-recorded", ONE.but(more=dropout(1)), TWO)
    yield Pair("two-models", ONE, ONE.but(hidden=6), refused="these are not two runs of one model: of 3 and 3 parameters 0 agree in name and shape")
    yield Pair("other-local-gradients", TWO, TWO.but(local=exchanged), verdict="within_envelope")
    yield Pair("other-local-gradients-rounded", TWO, TWO.but(local=one_sided))
    wrong = TWO.but(local=on(1, lambda g: {**g, "head.weight": g["head.weight"] + 1}))
    yield fault("local-gradient-of-a-rank", "unexplained", TWO, wrong, "local gradients", rank=1)
    a, b = FIRST_OF_ONE.but(centred="seen"), FIRST_OF_TWO.but(centred="seen")
    yield fault("statistics-in-a-buffer", "local-statistics", a, b.but(means=own_means), "loss", step=0)
    turned = Tiny(world=2, micro=2, batch=8, samples=16)
    yield Pair("other-parts-of-gradients", turned, turned.but(pieces=lambda micro, *more: micro[::-1]), verdict="within_envelope")
    two, three = Tiny(world=2, micro=2, batch=12, samples=24), Tiny(world=2, micro=3, batch=12, samples=24)
    yield Pair("other-micro-steps", two, three)
    yield fault("other-micro-steps-weighted-alike", "micro-steps-weighted-alike", two.but(**FIRST), three.but(**FIRST, scale=by_rows), "loss", step=0)
    a, b = Tiny(batch=8, samples=64, at=0), Tiny(batch=8, samples=64, at=0, world=2)
    yield fault("another-shuffle", "shuffle-differs", a, b.but(ids=of_another_order(11, (0, 1))), "samples", step=0)
    yield fault("sampler-seed-of-a-rank", "sampler-seed-differs", a, b.but(ids=of_another_order(11, (1,))), "samples", step=0)


def form():
    yield Pair("twice", ONE, ONE, verdict="identical")
    yield Pair("plain", ONE, TWO)
    rounded = TWO.but(loss=on(1, lambda loss: (loss[0] * (1 + 2**-22), *loss[1:])))
    yield Pair("loss-rounded", TWO, rounded, verdict="within_envelope")
    not_reduced = lambda reduced, local, parts, run: local  # noqa: E731
    yield fault("gradient-not-reduced", "gradient-not-reduced", ONE, TWO.but(reduced=not_reduced), "reduced gradients")
    yield Pair("version-1", ONE.but(version=1), TWO.but(version=1))
    wrong = TWO.but(version=1, reduced=not_reduced)
    yield fault("version-1-not-reduced", "gradient-not-reduced", ONE.but(version=1), wrong, "reduced gradients")
    yield Pair("version-3", ONE, ONE.but(version=3), refused="version 3; this build reads versions 1 to 2")


def all_pairs():
    for family in (form, accumulation, losses, parts, updates, samples, random_numbers, exchanges, ways, ways_of_other_layouts, owned):
        for pair in family():
            pair.kept = family not in (ways, ways_of_other_layouts, owned)
            yield pair


def write(folder):
    pairs = list(all_pairs())
    for pair in pairs:
        for side, run in (("a", pair.a), ("b", pair.b)):
            run.but(run=f"{pair.name} {side}").go(folder / ("verdicts" if pair.kept else "more") / pair.name / side)
    lines = ",\n".join(json.dumps(pair.expected) for pair in pairs if pair.kept)
    (folder / "verdicts.json").write_text(f"[\n{lines}\n]\n")
    return pairs


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in (folder / "verdicts").rglob("*.trace")) + ["verdicts.json"]


def not_as_written(folder):
    """Files that are not what would be written."""
    names = files_of(folder)
    if names != files_of(HERE):
        return sorted(set(names) ^ set(files_of(HERE)))
    return [name for name in names if not filecmp.cmp(folder / name, HERE / name, shallow=False)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--lockstep")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        pairs = write(folder)
        if options.check:
            problems += [f"{name} is not what verdicts.py writes" for name in not_as_written(folder)]
        elif not options.lockstep:
            shutil.rmtree(HERE / "verdicts", ignore_errors=True)
            shutil.copytree(folder / "verdicts", HERE / "verdicts")
            shutil.copy(folder / "verdicts.json", HERE / "verdicts.json")
        for pair in pairs if options.lockstep else ():
            if options.only not in pair.name:
                continue
            base = folder / ("verdicts" if pair.kept else "more") / pair.name
            said, sentence = said_by(options.lockstep, base / "a", base / "b", pair.expected)
            if said != pair.expected:
                problems.append(f"expected {pair.expected}, lockstep says {said}: {sentence}")
    for problem in problems:
        print("problem:", problem)
    print(f"{len(pairs)} pairs, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
