"""A training run of a linear model whose gradients are written down here as formulas, traced on emulated ranks.

    h = body.weight x + body.bias   (less the batch's mean of h, a buffer of the name `centred`)
    loss of a row = |head.weight h - y|^2 / 2, its sum over the row's `count` tokens
    loss = sum of row losses / sum of counts + weight * mean of |h|^2 / 2 over rows (the named loss "balance")

Numbers are dyadic fractions, so that every sum of the first step is exact in float64 and the truth of a pair of runs does not
depend on how it was computed.
"""

import torch

from trace_writer import Placement, TraceWriter, mix

FEATURES, HIDDEN, OUTPUTS, PADDED = 4, 4, 2, 4
NAMES = ("body.weight", "body.bias", "head.weight")


def dyadic(shape, *key):
    """Multiples of 1/64 between -1 and 1, by the key."""
    state = 1
    for part in key:
        state = mix(state * 1000003 + part + 17 & (1 << 64) - 1)
    count = 1
    for extent in shape:
        count *= extent
    values = [((mix(state + 7919 * i & (1 << 64) - 1) >> 40) % 128 - 63.5) / 64 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def single(tensors):
    """As a float32 tensor holds it, in float64."""
    return {k: v.float().double() for k, v in tensors.items()}


def norm_of(tensors):
    return float(sum((v * v).sum() for v in tensors.values()).sqrt())


def tokens(row):
    """Of PADDED places of a row those that count."""
    return 1 + row % PADDED


class Rows:
    """Features, targets and counts of rows, by sample id. `bare`: padding counts as data."""

    def __init__(self, ids, bare=False):
        self.ids = ids
        self.x = torch.stack([dyadic((FEATURES,), 1, i) for i in ids])
        if bare:
            self.x = self.x + torch.tensor([[(PADDED - tokens(i)) / 8] for i in ids], dtype=torch.float64)
        self.y = torch.stack([dyadic((OUTPUTS,), 2, i) for i in ids])
        self.counts = torch.tensor([float(tokens(i)) for i in ids], dtype=torch.float64)


def backward(params, rows, scale, centre=None, balance=0.0):
    """Row losses, the mean of h, and gradients of sum_i scale_i * loss_i + balance * sum_i |h_i|^2 / 2.

    `centre`: what is taken off every h; its own gradient is left to the caller, who gets that of each h.
    """
    h = rows.x @ params["body.weight"].t() + params["body.bias"]
    used = h if centre is None else h - centre
    error = used @ params["head.weight"].t() - rows.y
    of_h = scale[:, None] * (error @ params["head.weight"]) + balance * h
    head = (scale[:, None] * error).t() @ used
    return (error * error).sum(1) / 2, h, of_h, head


def gradients(rows, of_h, head):
    return {"body.weight": of_h.t() @ rows.x, "body.bias": of_h.sum(0), "head.weight": head}


def added(*parts):
    return {k: sum(p[k] for p in parts) for k in parts[0]}


def scaled(tensors, factor, only=""):
    return {k: v * factor if k.startswith(only) else v for k, v in tensors.items()}


def orthogonal(matrix):
    """Near the factor U V^T of U S V^T: five rounds of the quintic iteration that Muon takes."""
    x = matrix / float((matrix * matrix).sum().sqrt())
    for _ in range(5):
        gram = x @ x.t()
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
    return x


class Tiny:
    """One run. `at`: the step of the fault; hooks act on it and, unless `once`, on every later one.

    `shards`: dimension by name of the parameter that is partitioned over ranks. `micro`: micro-steps. `balance`: the weight of the
    named loss. `group`: ranks that hold parts of the same rows. `starts`: the weights before the first step are recorded. `omits`: phases that
    the tracer does not see. `inside`: the modules around the model, as names tell them. `owners`: the rank by name of a parameter that other ranks
    do not hold.
    """

    def __init__(self, world=1, steps=2, batch=4, samples=8, at=1, once=False, micro=1, rate=0.25, optimizer=None, declared=None,
                 shards=None, placed=(), balance=0.0, centred="", averages=0.0, counted=False, group=1, version=2, run="tiny",
                 local_shards=False, starts=True, hidden=HIDDEN, omits=(), inside="", owners=None, **hooks):  # fmt: skip
        self.__dict__.update({k: v for k, v in locals().items() if k not in ("self", "hooks")})
        self.optimizer = optimizer or {"name": "sgd"}
        self.shards, self.hooks = shards or {}, hooks

    def but(self, **changes):
        hooks = {**self.hooks}
        given = {k: v for k, v in self.__dict__.items() if k != "hooks"}
        for name, value in changes.items():
            (given if name in given else hooks)[name] = value
        return Tiny(**given, **hooks)

    def hook(self, name, step, value, *more):
        acts = step == self.at if self.once else step >= self.at
        return self.hooks[name](value, *more) if acts and name in self.hooks else value

    # --- what ranks hold ---

    def part(self, name, tensor, rank):
        """The rank's part of a parameter, and its placement."""
        tensor = tensor.float()
        if name not in self.shards:
            return tensor, Placement(tensor.shape, replicated=True) if name in self.placed else None
        dim = self.shards[name]
        parts = tensor.tensor_split(self.world, dim)
        offset = [0] * tensor.dim()
        offset[dim] = sum(p.shape[dim] for p in parts[:rank])
        return parts[rank], Placement(tensor.shape, offset)

    def put(self, writer, phase, prefix, tensors, rank):
        for name, value in tensors.items():
            if not self.holds(rank, name):
                continue
            part, placement = self.part(name, value, rank)
            alike = placement is None and name not in (self.owners or {})
            writer.tensor(phase, prefix + self.inside + name, part, alike=alike, placement=placement)

    def holds(self, rank, name):
        return (self.owners or {}).get(name, rank) == rank

    # --- the run ---

    def batch_of(self, step):
        per_epoch = -(-self.samples // self.batch)
        epoch, k = divmod(step, per_epoch)
        order = sorted(range(3, 3 + 7 * self.samples, 7), key=lambda i: mix(1000 * epoch + i + 5))
        return order[k * self.batch : (k + 1) * self.batch]

    def go(self, folder):
        shapes = {"body.weight": (self.hidden, FEATURES), "body.bias": (self.hidden,), "head.weight": (OUTPUTS, self.hidden)}
        one = {name: dyadic(shape, 3, k) for k, (name, shape) in enumerate(shapes.items())}
        self.params = [dict(one) for _ in range(self.world)]
        self.params = [single(p) for p in self.hook("initial", -1, self.params)]
        self.average = dict(self.params[0])
        self.moments = [{}, {}]
        self.before, self.count = None, 0
        header = {"optimizer": self.optimizer, "global_batch": self.batch, "base_rate": self.rate, **(self.declared or {})}
        if self.micro > 1:
            header["accumulation"] = self.micro
        if self.averages:
            header["average_decay"] = self.averages
        self.writers = [TraceWriter(folder, r, self.world, self.run, header, version=self.version, omits=self.omits) for r in range(self.world)]
        for r, w in enumerate(self.writers if self.starts else ()):
            w.begin(-1)
            self.put(w, "parameters", "", self.params[r], r)
            if self.averages:
                self.put(w, "averaged weights", "", self.average, r)
            w.end()
        for step in range(self.steps):
            self.step(step)
        for w in self.writers:
            w.finish()

    def ids_of(self, step):
        ids = self.batch_of(step)
        by_rank = [ids] * self.world if self.group > 1 else [ids[r :: self.world] for r in range(self.world)]
        return self.hook("ids", step, by_rank, step, self)

    def micro_rows(self, ids, step):
        bare = self.hook("bare", step, False)
        cuts = [m * len(ids) // self.micro for m in range(self.micro + 1)]
        return [Rows(ids[a:b], bare) for a, b in zip(cuts, cuts[1:])]

    def forward(self, step, ids):
        """By rank: dicts of losses, row losses, parts of the gradient by name."""
        rows = [self.micro_rows(own, step) for own in ids]
        counts = sum(float(r.counts.sum()) for own in rows for r in own)
        all_rows = sum(len(r.ids) for own in rows for r in own)
        centres = self.centres(step, rows)
        made = []
        for r, own in enumerate(rows):
            made.append({"micro": [], "rows": [], "losses": [], "counts": [], "h": []})
            for piece in own:
                # A group of ranks that holds parts of the same rows has each row's loss in as many parts.
                scale = torch.full((len(piece.ids),), self.world / counts, dtype=torch.float64)
                scale = self.hook("scale", step, scale, piece, own, self)
                weight = self.balance * self.world / all_rows
                losses, h, of_h, head = backward(self.params[r], piece, scale, centres[r])
                made[r]["micro"].append({"main": (piece, of_h, head), "balance": (piece, weight * h, 0 * head)})
                made[r]["rows"].append(losses)
                made[r]["counts"].append(piece.counts)
                made[r]["losses"].append(float((scale * losses).sum()))
                made[r]["h"].append(weight * float((h * h).sum()) / 2)
        if centres[0] is not None:
            self.through_the_mean(step, made)
        return rows, made

    def centres(self, step, rows):
        if not self.centred:
            return [None] * self.world
        h = [torch.cat([p.x @ self.params[r]["body.weight"].t() + self.params[r]["body.bias"] for p in own])
             for r, own in enumerate(rows)]  # fmt: skip
        self.means = self.hook("means", step, [torch.cat(h).mean(0)] * self.world, h)
        return self.means

    def through_the_mean(self, step, made):
        """The mean of h has a gradient, too: every h loses the mean of all of them that made its centre."""
        of_h = [torch.cat([m["main"][1] for m in one["micro"]]) for one in made]
        means = self.hook("means", step, [torch.cat(of_h).mean(0)] * self.world, of_h)
        for one, mean in zip(made, means):
            for m in one["micro"]:
                piece, own, head = m["main"]
                m["main"] = (piece, own - mean, head)

    def step(self, step):
        ids = self.ids_of(step)
        rows, made = self.forward(step, ids)
        parts, local, losses = [], [], []
        for r in range(self.world):
            mine = []
            for m in made[r]["micro"]:
                named = {name: single(gradients(*m[name])) for name in ("main", "balance")}
                named = self.hook("named", step, named, r, self)
                mine.append(named)
            parts.append(mine)
            micro = [single(added(*m.values()) if self.balance else m["main"]) for m in mine]
            micro = self.hook("pieces", step, micro, r, self)
            local.append(single(self.hook("sum", step, added(*micro), micro)))
            mine.append(micro)
            main, aux = sum(made[r]["losses"]), sum(made[r]["h"])
            aux = self.hook("aux", step, aux, self)
            losses.append((main + aux, main, aux))
        losses = self.hook("loss", step, losses, self)
        local = [single(g) for g in self.hook("local", step, local, self)]
        one = scaled(added(*local), 1 / self.world)
        reduced = [single(g) for g in self.hook("reduced", step, [dict(one) for _ in range(self.world)], local, parts, self)]
        norms = self.hook("norm", step, [norm_of(g) for g in reduced], reduced, self)
        before = [dict(p) for p in self.params]
        skips = self.hook("skips", step, [False] * self.world) if "skips" in self.hooks else None
        self.count += 1
        self.update(step, reduced, skips)
        self.params = [single(p) for p in self.hook("after", step, self.params, before, self)]
        if self.averages:
            self.follow(step, before[0])
        for r, w in enumerate(self.writers):
            w.begin(step)
            w.samples(ids[r])
            if "more" in self.hooks:
                self.hooks["more"](w, r, step, self)
            w.scalar("control", "learning_rate", self.rate, alike=True)
            if skips is not None:
                w.skipped(skips[r])
            self.write_loss(w, ids[r], rows[r], made[r], losses[r], r)
            self.write_parts(w, parts[r], local[r])
            for name, value in ((k, v) for k, v in local[r].items() if self.holds(r, k)):
                part, placement = self.part(name, value, r) if self.local_shards else (value.float(), None)
                w.tensor("local gradients", self.inside + name, part, placement=placement)
            self.put(w, "reduced gradients", "", reduced[r], r)
            w.scalar("gradient norm", "gradient_norm", norms[r], alike=len(set(norms)) == 1)
            self.put(w, "parameters", "", self.params[r], r)
            if self.centred:
                w.tensor("parameters", f"buffer/{self.centred}", self.means[r].float(), alike=self.means[0] is self.means[-1])
            if self.averages:
                self.put(w, "averaged weights", "", self.average, r)
            if self.moments[0]:
                for prefix, kept in zip(("first_moment/", "second_moment/"), self.moments):
                    held = self.hooks["state"](kept, r, self) if "state" in self.hooks else kept
                    self.put(w, "optimizer state", prefix, held, r)
                w.scalar("optimizer state", "updates", self.count, alike=True)
            if "evaluated" in self.hooks:
                self.hooks["evaluated"](w, r, step, self)
            w.end()

    def write_loss(self, w, ids, rows, made, loss, rank):
        w.scalar("loss", "loss", loss[0])
        w.tensor("loss", "row_losses", torch.cat(made["rows"]).float(), ids=ids)
        counts = torch.cat(made["counts"])
        if self.counted:
            w.tensor("loss", "row_counts", counts.to(torch.int64), ids=ids)
            w.tensor("loss", "row_widths", torch.full((len(ids),), PADDED, dtype=torch.int64), ids=ids)
        if self.balance:
            w.scalar("loss", "loss/main", loss[1])
            w.scalar("loss", "loss/balance", loss[2] / self.balance)
            w.scalar("loss", "weight/balance", self.balance)
        if self.micro > 1:
            own = [float(r.sum() / c.sum()) for r, c in zip(made["rows"], made["counts"])]
            w.tensor("loss", "micro_losses", torch.tensor(own, dtype=torch.float64))
            w.tensor("loss", "micro_counts", torch.tensor([int(c.sum()) for c in made["counts"]]))
            w.tensor("loss", "micro_rows", torch.tensor([len(r) for r in made["rows"]]))

    def write_parts(self, w, parts, local):
        """Of the gradient by micro-step, or by named loss where there is one."""
        *named, micro = parts
        if self.balance:
            pieces = {f"loss {name}": added(*[m[name] for m in named]) for name in ("main", "balance")}
        elif self.micro > 1:
            pieces = {f"micro {k}": m for k, m in enumerate(micro)}
        else:
            return
        for prefix, tensors in pieces.items():
            for name, value in tensors.items():
                w.tensor("gradient parts", f"{prefix}/{name}", value.float(), dot=float((single({0: value})[0] * local[name]).sum()))

    def update(self, step, reduced, skips):
        kind = self.optimizer["name"]
        if kind == "adam":
            self.adam(step, reduced)
            return
        for r, (p, g) in enumerate(zip(self.params, reduced)):
            if skips and skips[r]:
                continue
            for name in p:
                change = self.hook("change", step, self.change_of)
                p[name] = (p[name] - self.rate * change(name, g[name])).float().double()

    def change_of(self, name, gradient):
        if self.optimizer["name"] == "muon" and gradient.dim() == 2:
            return orthogonal(gradient)
        factor = next((g.get("rate_factor", 1) for g in (self.declared or {}).get("parameters", ()) if name.startswith(g["prefix"])), 1)
        return factor * gradient

    def adam(self, step, reduced):
        beta1, beta2, eps = 0.9, 0.999, 1e-8
        first, second = self.moments
        count = self.hook("count", step, self.count)
        for name, g in reduced[0].items():
            first[name] = (beta1 * first.get(name, 0 * g) + (1 - beta1) * g).float().double()
            second[name] = (beta2 * second.get(name, 0 * g) + (1 - beta2) * g * g).float().double()
            root = second[name].sqrt() / (1 - beta2**count) ** 0.5
            change = self.rate / (1 - beta1**count) * first[name] / (root + eps)
            for p in self.params:
                p[name] = (p[name] - change).float().double()

    def follow(self, step, before):
        decay = self.hook("decay", step, self.averages)
        source = self.hook("source", step, self.params[0], before)
        self.average = single({k: decay * v + (1 - decay) * source[k] for k, v in self.average.items()})
