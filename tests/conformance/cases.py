"""The runs that `compare` is asked about: clean ones, on which it must be silent, and faults, with their step and cause."""

import math

import torch

from foreign import Clip, Conv, Fault, Mlp, Settings, Transformer, batch_of, generator, rate_at, whole
from parallel import Parallel

ONE = dict(world=1)
QUIET = {"identical", "within_envelope", "inconclusive"}


class Case:
    """Run B against run A. `repeats`: with four permuted repeats of A. `step`: of the fault; None: there is none.

    `causes` are the right names; none of them: there is no name for it, and any would be wrong. `where`: what the place
    must contain. `verdict`: what it must be, if not divergent (of a fault) or silent (of a clean run).
    """

    def __init__(self, name, a, b, step=None, causes=(), repeats=False, where="", verdict=None, says="", silent=False):
        self.name, self.a, self.b, self.step, self.causes = name, a, b, step, set(causes)
        self.repeats, self.where, self.verdict, self.says, self.silent = repeats, where, verdict, says, silent

    def undeclared(self):
        """The same of a tracer that declares nothing: it may see and name less, and must not be wrong."""
        a, b = self.a.but(declared=False), self.b.but(declared=False)
        return Case(self.name + ", nothing declared", a, b, self.step, self.causes, self.repeats, silent=True)


def copied(grads):
    return [{k: v.clone() for k, v in g.items()} for g in grads]


def on(rank, change):
    """A hook that changes one rank's tensors in place of the others'."""

    def hook(grads, *more):
        grads = copied(grads)
        change(grads[rank], *more)
        return grads

    return hook


def every(change):
    def hook(grads, *more):
        grads = copied(grads)
        for g in grads:
            change(g, *more)
        return grads

    return hook


def scaled(factor, only=None):
    def change(g, *more):
        for k in g:
            if only is None or k.startswith(only):
                g[k] *= factor

    return change


def minus_rank(rank, sign=-1.0):
    def hook(reduced, local, run, s):
        return [{k: v + sign * local[rank][k] / s.world for k, v in g.items()} for g in reduced]

    return hook


def stale(rank):
    def hook(reduced, local, run, s):
        old = run.last["local"][rank]
        return [{k: v + (old[k] - local[rank][k]) / s.world for k, v in g.items()} for g in reduced]

    return hook


def not_zeroed(reduced, local, run, s):
    return [{k: v + run.last["applied"][0][k] for k, v in g.items()} for g in reduced]


def own(only=None):
    def hook(reduced, local, run, s):
        return [{k: local[r][k] if only is None or k == only else v for k, v in g.items()} for r, g in enumerate(reduced)]

    return hook


def folded(op):
    def hook(reduced, local, run, s):
        return [{k: op(torch.stack([x[k] for x in local])) for k in g} for g in reduced]

    return hook


def swapped(a, b):
    def change(g, *more):
        g[a], g[b] = g[b], g[a]

    return change


def low_precision(reduced, local, run, s):
    return [{k: (sum((x[k] / s.world).bfloat16() for x in local)).float() for k in g} for g in reduced]


def flipped(name, element, bit):
    def change(g, *more):
        flat = g[name].reshape(-1)
        word = flat[element : element + 1].view(torch.int32)
        flat[element : element + 1] = (word ^ (1 << bit)).view(torch.float32)

    return change


def set_to(name, value):
    def change(g, *more):
        g[name].reshape(-1)[0] = value

    return change


def optimizer_reset(o, rank, s):
    o.state.clear()
    return o


def decay(value):
    def hook(o, rank, s):
        for group in o.param_groups:
            group["weight_decay"] = value
        return o

    return hook


def kept_by(rank, only=None):
    """The rank (or every one: None) keeps its parameters, or one of them, through the update."""

    def hook(params, before, run, s):
        for r, p in enumerate(params):
            for k in p:
                if (rank is None or r == rank) and (only is None or k == only):
                    with torch.no_grad():
                        p[k].copy_(before[r][k])
        return params

    return hook


def nudged(rank, name, change):
    def hook(params, *more):
        with torch.no_grad():
            params[rank][name].reshape(-1)[0] += change
        return params

    return hook


def local_mean(mean, row, count, r, s):
    return row.sum() / count.sum()


def dropped(ids, step, s):
    later = batch_of(s, step + 1)[1 :: s.world]
    return [r if k != 1 else r[1:] + later[:1] for k, r in enumerate(ids)]


def duplicated(ids, step, s):
    return [r if k != 1 else [ids[0][0]] + r[1:] for k, r in enumerate(ids)]


def other_sample(ids, step, s):
    inside = {i for r in ids for i in r}
    other = next(i for i in range(s.samples) if i not in inside)
    return [r if k != 1 else [other] + r[1:] for k, r in enumerate(ids)]


def other_seed(ids, step, s):
    order = torch.randperm(s.samples, generator=generator(77, step)).tolist()
    return [r if k != 1 else [i + 1000 for i in order[: len(r)]] for k, r in enumerate(ids)]


MLP = Settings(Mlp())
CONV = Settings(Conv(), optimizer={"name": "adam", "weight_decay": 0.0}, rate=0.01)
TOKENS = Settings(Transformer(), optimizer={"name": "adamw", "weight_decay": 0.1}, rate=0.01, state=True)
CLIPPED = MLP.but(clip=0.3, applied=True)
PAIRS = Settings(Clip(), roles={"vision": "row encoder", "text": "candidate encoder", "log_scale": "temperature"},
                 optimizer={"name": "sgd"}, rate=0.1)  # fmt: skip
# Whoever records more than gradients: an average of the weights, a metric, counts that are summed over ranks.
RICH = MLP.but(average=0.9, evaluates=True, counts=True, state=True)
RICH_TOKENS = TOKENS.but(average=0.9, evaluates=True, counts=True)
TENSOR, STAGES = Parallel("tensor"), Parallel("pipeline")


def clean():
    four = dict(world=4)
    yield Case("mlp 1x8 and 4x2", MLP, MLP.but(**four))
    yield Case("mlp 1x8 and 4x2 by repeats", MLP, MLP.but(**four), repeats=True, verdict="within_envelope")
    yield Case("mlp 1x8 and 8x1 by repeats", MLP, MLP.but(world=8), repeats=True, verdict="within_envelope")
    yield Case("mlp twice", MLP.but(world=2), MLP.but(world=2), verdict="identical")
    yield Case("mlp wrapped and plain", MLP, MLP.but(world=4, prefix="module."), repeats=True, verdict="within_envelope")
    yield Case("mlp wrapped twice", MLP, MLP.but(world=4, prefix="engine.net."), repeats=True, verdict="within_envelope")
    yield Case("mlp with sums and shares", MLP, MLP.but(world=4, reduction="sum"), repeats=True, verdict="within_envelope")
    silent = MLP.but(world=4, reduction="sum", declared=False)
    yield Case("mlp with sums, not declared", MLP.but(declared=False), silent)
    yield Case("mlp with sums, not declared, by repeats", MLP.but(declared=False), silent, repeats=True,
               verdict="within_envelope")  # fmt: skip
    yield Case("mlp clipped", CLIPPED, CLIPPED.but(**four), repeats=True, verdict="within_envelope")
    yield Case("mlp clipped, free", CLIPPED, CLIPPED.but(**four))
    accumulated = MLP.but(accumulation=4, batch=16, samples=48)
    yield Case("mlp with accumulation", accumulated, accumulated.but(world=4, accumulation=2), repeats=True,
               verdict="within_envelope")  # fmt: skip
    yield Case("mlp with nothing declared", MLP.but(declared=False), MLP.but(world=4, declared=False), repeats=True,
               verdict="within_envelope")  # fmt: skip
    yield Case("mlp without flags", MLP.but(alike=False), MLP.but(world=4, alike=False), repeats=True,
               verdict="within_envelope")  # fmt: skip
    yield Case("mlp over several epochs", MLP.but(steps=9), MLP.but(steps=9, world=2), repeats=True,
               verdict="within_envelope")  # fmt: skip
    yield Case("mlp in one order of rows", MLP.but(steps=9, shuffle=False), MLP.but(steps=9, world=2, shuffle=False),
               repeats=True, verdict="within_envelope")  # fmt: skip
    yield Case("mlp with a warmup", MLP.but(warmup=4), MLP.but(warmup=4, world=4), repeats=True, verdict="within_envelope")
    yield Case("mlp in another order of sums", MLP.but(world=4), MLP.but(world=4, backwards=True), verdict="inconclusive",
               says="summing in another order")  # fmt: skip
    masked = MLP.but(model=Mlp(masked=True), world=2)
    turned = Fault(local=every(lambda g, *m: g["mask.weight"].neg_()))
    yield Case("mlp with zeros of the other sign", masked, masked.but(fault=turned), verdict="within_envelope")
    yield Case("mlp with zeros of the other sign, two layouts", masked, masked.but(world=4, fault=turned))
    yield Case("conv with shared statistics", CONV, CONV.but(**four), repeats=True, verdict="within_envelope")
    yield Case("conv with shared statistics, free", CONV, CONV.but(**four))
    yield Case("conv twice", CONV.but(**four), CONV.but(**four), verdict="identical")
    yield Case("tokens of unequal rows", TOKENS, TOKENS.but(**four), repeats=True, verdict="within_envelope")
    yield Case("tokens of unequal rows, free", TOKENS, TOKENS.but(**four))
    yield Case("tokens 2x4 and 4x2", TOKENS.but(world=2), TOKENS.but(**four), repeats=True, verdict="within_envelope")
    half = MLP.but(precision="bfloat16")
    yield Case("mlp in bfloat16", half, half.but(**four), repeats=True, verdict="within_envelope")
    yield Case("mlp in bfloat16, free", half, half.but(**four))
    half = MLP.but(precision="float16")
    yield Case("mlp in float16", half, half.but(**four), repeats=True, verdict="within_envelope")
    yield Case("pairs", PAIRS, PAIRS.but(**four), repeats=True, verdict="within_envelope")
    yield Case("pairs, free", PAIRS, PAIRS.but(**four))
    yield Case("tensor-parallel, one and two replicas", TENSOR, TENSOR.but(replicas=2), repeats=True,
               verdict="within_envelope")  # fmt: skip
    yield Case("tensor-parallel, free", TENSOR, TENSOR.but(replicas=2))
    for base, label in ((RICH, "mlp"), (RICH_TOKENS, "tokens")):
        for repeats in (True, False):
            yield Case(f"{label} with an average, a metric and counts{'' if repeats else ', free'}", base, base.but(**four),
                       repeats=repeats, verdict="within_envelope" if repeats else None)  # fmt: skip
        yield Case(f"{label} with an average, a metric and counts, twice", base.but(**four), base.but(**four),
                   verdict="identical")  # fmt: skip
        micro = base.but(accumulation=2, batch=16, samples=48)
        yield Case(f"{label} with all of it and accumulation", micro, micro.but(world=4, accumulation=4), repeats=True,
                   verdict="within_envelope")  # fmt: skip
        yield Case(f"{label} resumed", base, base.but(world=4, resume=3))
        yield Case(f"{label} resumed on as many ranks", base.but(**four), base.but(world=4, resume=3))
        yield Case(f"{label} resumed, by repeats", base.but(resume=3), base.but(world=4, resume=3), repeats=True)
        yield Case(f"{label} in shards", base, base.but(world=2, shards=True))
        yield Case(f"{label} in shards, by repeats", base, base.but(world=2, shards=True), repeats=True)
        yield Case(f"{label} in shards of two and four", base.but(world=2, shards=True), base.but(world=4, shards=True))
    silent = TENSOR.but(declared=False)
    yield Case("tensor-parallel, not declared", silent, silent.but(replicas=2), repeats=True)
    yield Case("pipeline, one and two replicas", STAGES, STAGES.but(replicas=2), repeats=True, verdict="within_envelope")
    yield Case("pipeline, free", STAGES, STAGES.but(replicas=2))
    silent = STAGES.but(declared=False)
    yield Case("pipeline, not declared", silent, silent.but(replicas=2), repeats=True)


def reductions():
    """Faults between local and reduced gradients."""
    for base, label in ((MLP, "mlp"), (TOKENS, "tokens"), (RICH, "rich mlp"), (RICH_TOKENS, "rich tokens")):
        for repeats in (True, False):
            how = "" if repeats else ", free"
            faults = {
                "sum": (["gradient-sum-not-mean"], Fault(reduced=every(scaled(4.0)))),
                "mean twice": (["mean-taken-twice"], Fault(reduced=every(scaled(0.25)))),
                "without rank 2": (["rank-missing"], Fault(reduced=minus_rank(2))),
                "rank 1 twice": (["rank-counted-twice"], Fault(reduced=minus_rank(1, 1.0))),
                "stale rank 3": (["stale-gradient"], Fault(reduced=stale(3))),
                "bfloat16 messages": (["reduced-in-low-precision"], Fault(reduced=low_precision)),
                "largest": (["wrong-reduction-op"], Fault(reduced=folded(lambda x: x.max(0).values))),
            }
            for what, (causes, fault) in faults.items():
                if not repeats and label != "mlp" and what not in ("sum", "stale rank 3"):
                    continue
                yield Case(f"{label}: {what}{how}", base, base.but(world=4, fault=fault), 3, causes, repeats,
                           "reduced gradients")  # fmt: skip
    yield Case("mlp: gradients not zeroed", MLP, MLP.but(world=4, fault=Fault(reduced=not_zeroed)), 3,
               ["gradients-not-zeroed"], True)  # fmt: skip
    yield Case("mlp: one tensor not reduced", MLP, MLP.but(world=4, fault=Fault(reduced=own("body.1.bias"))), 3,
               ["parameter-not-reduced"], True, "body.1.bias")  # fmt: skip
    yield Case("mlp: nothing reduced", MLP, MLP.but(world=4, fault=Fault(reduced=own())), 3, ["gradient-not-reduced"], True)
    yield Case("mlp: buckets mixed up", MLP,
               MLP.but(world=4, fault=Fault(reduced=every(swapped("body.0.weight", "body.1.weight")))), 3,
               ["buckets-swapped"], True)  # fmt: skip
    yield Case("mlp: a bit of a message", MLP,
               MLP.but(world=4, fault=Fault(reduced=every(flipped("body.0.weight", 3, 24)))), 3, ["message-corrupted"],
               True, "body.0.weight")  # fmt: skip


def locals_():
    """Faults of local gradients and losses."""
    yield Case("mlp: signs", MLP, MLP.but(world=4, fault=Fault(local=every(scaled(-1.0)))), 3, ["sign-flipped"], True)
    yield Case("mlp: loss times world", MLP, MLP.but(world=4, fault=Fault(loss=lambda x, r, s: x * s.world)), 3,
               ["loss-times-world", "gradient-times-world"], True)  # fmt: skip
    yield Case("mlp: loss over world", MLP, MLP.but(world=4, fault=Fault(loss=lambda x, r, s: x / s.world)), 3,
               ["loss-over-world", "gradient-over-world"], True)  # fmt: skip
    yield Case("mlp: gradients times world", MLP, MLP.but(world=4, fault=Fault(local=every(scaled(4.0)))), 3,
               ["gradient-times-world"], True)  # fmt: skip
    yield Case("mlp: one group times world", MLP, MLP.but(world=4, fault=Fault(local=every(scaled(4.0, "body.0")))), 3,
               [], True)  # fmt: skip
    yield Case("mlp: a head without gradient", MLP, MLP.but(world=4, fault=Fault(local=every(scaled(0.0, "action_head")))),
               3, [], True)  # fmt: skip
    yield Case("mlp: a head twice", MLP, MLP.but(world=4, fault=Fault(local=every(scaled(2.0, "action_head")))), 3, [],
               True)  # fmt: skip
    yield Case("mlp: NaN on rank 2", MLP, MLP.but(world=4, fault=Fault(local=on(2, set_to("body.0.bias", math.nan)))), 3,
               ["non-finite"], True)  # fmt: skip
    yield Case("mlp: a bit on rank 1", MLP,
               MLP.but(world=4, fault=Fault(local=on(1, flipped("body.0.weight", 7, 27)))), 3, ["bit-flip"], True,
               "body.0.weight")  # fmt: skip
    many = MLP.but(accumulation=4, batch=16, samples=48)
    yield Case("mlp: accumulation not divided", many,
               many.but(world=2, fault=Fault(local=every(scaled(4.0)))), 3, ["accumulation-not-scaled"], True)  # fmt: skip
    yield Case("tokens: mean of means", TOKENS, TOKENS.but(world=4, fault=Fault(step=0, mean=local_mean)), 0,
               ["mean-of-means"], True)  # fmt: skip
    yield Case("tokens: mean of means, free", TOKENS, TOKENS.but(world=4, fault=Fault(step=0, mean=local_mean)), 0,
               ["mean-of-means"])  # fmt: skip
    buffer = Fault(once=True, buffers=lambda b, s: [{**x, "bn.running_var": x["bn.running_var"] * 1.01} for x in b])
    yield Case("conv: a buffer 1 % too large", CONV, CONV.but(world=4, fault=buffer), 3, [], True, "buffer/bn.running_var")
    drift = Fault(once=True, buffers=lambda b, s: b[:-1] + [{**b[-1], "bn.running_mean": b[-1]["bn.running_mean"] + 0.1}])
    yield Case("conv: a buffer on one rank", CONV, CONV.but(world=4, fault=drift), 3, ["buffers-not-synchronised"], True)
    yield Case("conv: statistics of each rank's rows", CONV, CONV.but(world=4, model=Conv(sync=False)), 0, ["batch-norm-local"], True)
    yield Case("mlp: a loss 1 % too large, free", MLP,
               MLP.but(world=4, fault=Fault(local=every(scaled(1.01)))), 3, ["constant-factor"])  # fmt: skip
    yield Case("mlp: a loss 1 % too large", MLP, MLP.but(world=4, fault=Fault(local=every(scaled(1.01)))), 3, [], True)
    for wrong, causes in (("detached", ["gather-without-gradient", "candidates-detached"]), ("own", ["gather-backward-sliced"]),
                          ("scale", ["temperature-detached"])):  # fmt: skip
        yield Case(f"pairs: gather {wrong}", PAIRS, PAIRS.but(world=4, model=Clip(wrong)), 0, causes, True)
    silent = PAIRS.but(roles=None)
    yield Case("pairs: gather detached, no roles", silent, silent.but(world=4, model=Clip("detached")), 0, [], True)


def updates():
    """Faults of clipping, of the optimizer and of replicas."""
    for base, how in ((CLIPPED, ""), (MLP.but(clip=0.3, state=True), ", not recorded")):
        free = base.but(world=4)
        yield Case(f"clip missing{how}", base, free.but(fault=Fault(clip=lambda f, *m: [1.0] * len(f))), 3,
                   ["clip-missing"], True)  # fmt: skip
        yield Case(f"clip twice{how}", base, free.but(fault=Fault(clip=lambda f, *m: [x * x for x in f])), 3,
                   ["clip-twice"], True)  # fmt: skip
    local_norm = Fault(norm=lambda n, reduced, local, s: [whole(g) for g in local])
    yield Case("clip by own norms", CLIPPED, CLIPPED.but(world=4, fault=local_norm), 3, ["clip-on-local-norm"], True)
    yield Case("clip by own norms, free", CLIPPED, CLIPPED.but(world=4, fault=local_norm), 3, ["clip-on-local-norm"])
    lost = Fault(once=True, optimizer=optimizer_reset)
    momentum = MLP.but(state=True)
    for base, label in ((momentum, "momentum"), (TOKENS, "moments"), (RICH, "rich momentum"), (RICH_TOKENS, "rich moments")):
        for repeats in (True, False):
            yield Case(f"{label} lost{'' if repeats else ', free'}", base, base.but(world=4, fault=lost), 3,
                       ["optimizer-state-lost"], repeats, "parameters")  # fmt: skip
    for value, cause in ((0.0, "weight-decay-missing"), (0.2, "weight-decay-twice")):
        yield Case(f"tokens: {cause}", TOKENS, TOKENS.but(world=4, fault=Fault(optimizer=decay(value))), 3, [cause])
    frozen = Fault(after=kept_by(None, "mlp.up.bias"))
    yield Case("tokens: a parameter is not updated", TOKENS, TOKENS.but(world=4, fault=frozen), 3,
               ["parameter-not-updated"], False, "mlp.up.bias")  # fmt: skip
    behind = Fault(once=True, after=kept_by(2))
    yield Case("mlp: rank 2 makes no update", MLP, MLP.but(world=4, fault=behind), 3, ["rank-behind"], False, "")
    drift = Fault(once=True, after=nudged(2, "body.0.weight", 0.01))
    yield Case("mlp: a replica drifts", MLP, MLP.but(world=4, fault=drift), 3, ["replica-corrupted"], False, "body.0.weight")
    for base, label in ((RICH, "rich mlp"), (RICH_TOKENS, "rich tokens")):
        name = "body.0.weight" if base is RICH else "mlp.up.bias"
        yield Case(f"{label}: rank 2 makes no update", base, base.but(world=4, fault=behind), 3, ["rank-behind"])
        yield Case(f"{label}: a parameter is not updated", base, base.but(world=4, fault=Fault(after=kept_by(None, name))), 3,
                   ["parameter-not-updated"], False, name)  # fmt: skip
        yield Case(f"{label}: signs", base, base.but(world=4, fault=Fault(local=every(scaled(-1.0)))), 3, ["sign-flipped"], True)
        wrong = Fault(metric=lambda value: value + 0.4)
        yield Case(f"{label}: a wrong metric", base.but(world=4), base.but(world=4, fault=wrong), 3, [], False, "held_out_loss")
        yield Case(f"{label} in shards: signs", base, base.but(world=2, shards=True, fault=Fault(local=every(scaled(-1.0)))), 3,
                   ["sign-flipped"], True)  # fmt: skip
        again = Fault(step=4, batch=lambda ids, step, s: batch_of(s, step - 1))
        yield Case(f"{label} resumed: a batch again", base, base.but(world=4, resume=4, fault=again), 4, ["position-lost"], False, "samples")
        summed = Fault(step=4, reduced=every(scaled(4.0)))
        yield Case(f"{label} resumed: sum", base.but(resume=3), base.but(world=4, resume=3, fault=summed), 4,
                   ["gradient-sum-not-mean"], True, "reduced gradients")  # fmt: skip
    initial = Fault(step=-1, initial=nudged(3, "body.0.weight", 0.01))
    yield Case("mlp: other initial weights on rank 3", MLP, MLP.but(world=4, fault=initial), -1, ["initial-weights-differ"])
    full = Fault(used_rate=lambda rate, s: s.rate)
    warm = MLP.but(warmup=6, state=True)
    yield Case("mlp: the rate before the schedule", warm, warm.but(world=4, fault=full), 3, ["rate-not-applied"])


def streams():
    """Faults of samples, streams, control values and the ledger."""
    def shifted(rates, step, s):
        return [s.rate * min(1.0, (step + 2) / s.warmup)] * s.world

    warm = MLP.but(warmup=6)
    yield Case("rate times world", MLP, MLP.but(world=4, fault=Fault(rate=lambda r, *m: [x * 4 for x in r])), 3,
               ["rate-scaled-linear"])  # fmt: skip
    yield Case("rate times root of world", MLP, MLP.but(world=4, fault=Fault(rate=lambda r, *m: [x * 2.0 for x in r])), 3,
               ["rate-scaled-sqrt"])  # fmt: skip
    yield Case("schedule shifted", warm, warm.but(world=4, fault=Fault(rate=shifted)), 3, ["rate-differs", "schedule-shifted"])
    long = MLP.but(warmup=24, steps=12)
    ahead = Fault(step=2, rate=lambda rates, step, s: [rate_at(s, step + 1)] * s.world)
    yield Case("schedule one step ahead", long, long.but(world=4, fault=ahead), 2, ["schedule-shifted"])
    by_rank = Fault(step=1, rate=lambda rates, step, s: [rate_at(s, step * s.world)] * s.world)
    yield Case("schedule advanced by each rank", long, long.but(world=2, fault=by_rank), 1, ["scheduler-stepped-per-rank"])
    yield Case("rate on one rank", MLP, MLP.but(world=4, fault=Fault(rate=lambda r, *m: r[:-1] + [r[-1] * 0.9])), 3,
               ["rate-differs"])  # fmt: skip
    for hook, cause in ((dropped, "sample-dropped"), (duplicated, "sample-duplicated"), (other_sample, "sample-replaced"),
                        (other_seed, "sampler-seed-differs")):  # fmt: skip
        yield Case(f"samples: {cause}", MLP, MLP.but(world=4, fault=Fault(once=cause != "sampler-seed-differs", ids=hook)), 3,
                   [cause], False, "samples")  # fmt: skip
    same = Fault(ids=lambda ids, *m: [ids[0]] * len(ids))
    yield Case("samples: every rank the same", MLP, MLP.but(world=4, fault=same), 3, ["shards-identical"])
    forgotten = Fault(step=3, batch=lambda ids, step, s: batch_of(s, step % (s.samples // s.batch)))
    yield Case("samples: the epoch's order is the old one", MLP, MLP.but(world=4, fault=forgotten), 3, ["set-epoch-forgotten"])
    again = Fault(step=2, batch=lambda ids, step, s: batch_of(s, step - 1))
    yield Case("samples: a resume repeats a batch", MLP, MLP.but(world=4, steps=5, fault=again), 2, ["rank-behind-data"])
    one = Fault(stream=lambda pair, *m: (12345, pair[1]))
    yield Case("one stream on all ranks", MLP, MLP.but(world=4, fault=one), 3, ["same-stream-on-all-ranks"])
    more = Fault(stream=lambda pair, rank, *m: (pair[0], pair[1] + (rank == 2)))
    yield Case("a draw too many", MLP, MLP.but(world=4, fault=more), 3, ["extra-draws"])
    two = MLP.but(world=4, bucket=2)
    turned = Fault(calls=lambda calls, rank, s: calls[::-1] if rank == 2 else calls)
    yield Case("buckets in another order on rank 2", MLP, two.but(fault=turned), 3, ["collective-order"])
    missing = Fault(calls=lambda calls, rank, s: calls[:-1] if rank == 2 else calls)
    yield Case("a collective too few on rank 2", MLP, two.but(fault=missing), 3, ["collective-missing"])
    yield Case("tensor-parallel: wrong sum of activations", TENSOR.but(replicas=2),
               TENSOR.but(replicas=2, fault=Fault(halves=lambda h: [h[0], h[1] * 2])), 3, [])  # fmt: skip
    turned = Fault(calls=lambda calls, r, s: calls[1::-1] + calls[2:] if r == 3 else calls)
    yield Case("tensor-parallel: calls in another order", TENSOR, TENSOR.but(replicas=2, fault=turned), 3,
               ["collective-order"])  # fmt: skip
    for base, label in ((TENSOR, "tensor-parallel"), (STAGES, "pipeline")):
        yield Case(f"{label}: sum over replicas", base, base.but(replicas=2, fault=Fault(reduced=every(scaled(2.0)))), 3,
                   ["gradient-sum-not-mean"], True)  # fmt: skip
    last = Fault(local=lambda local, run, s: [local[0], {k: -v for k, v in local[1].items()}] * 2)
    yield Case("pipeline: signs in the last stage", STAGES, STAGES.but(replicas=2, fault=last), 3, [], True)


def all_cases():
    for part in (clean, reductions, locals_, updates, streams):
        for case in part():
            yield case
            if case.step is not None and case.a.declared:
                yield case.undeclared()
