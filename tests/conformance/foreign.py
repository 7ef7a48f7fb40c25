"""A small trainer that is not lockstep's: its ranks are emulated side by side, and every step is traced.

Each rank has its own copy of the parameters. A rank's local gradient is that of its own loss, gathers and shared
statistics included: the gradient of the sum of all ranks' losses by that rank's copy.
"""

import math

import torch
import torch.nn.functional as F

from trace_writer import TraceWriter, tensor_hash


def generator(*key):
    seed = 7
    for part in key:
        seed = (seed * 1000003 + part + 17) % (1 << 40)
    return torch.Generator().manual_seed(seed)


def normal(shape, scale, *key):
    return torch.randn(shape, generator=generator(*key)) * scale


class Conv:
    """A convolution with BatchNorm; statistics of all ranks together (sync) or of each rank's rows."""

    name, classes = "conv", 4

    def __init__(self, sync=True):
        self.sync = sync

    def parameters(self, seed):
        return {
            "conv.weight": normal((6, 3, 3), 0.4, seed, 1), "conv.bias": normal((6,), 0.1, seed, 2),
            "bn.weight": torch.ones(6), "bn.bias": torch.zeros(6),
            "head.weight": normal((4, 6), 0.5, seed, 3), "head.bias": torch.zeros(4),
        }  # fmt: skip

    def buffers(self):
        return {"bn.running_mean": torch.zeros(6), "bn.running_var": torch.full((6,), 12345.0)}

    def forward(self, params, buffers, batches):
        features = []
        for p, ids in zip(params, batches):
            x = torch.stack([normal((3, 10), 1, 100, i) for i in ids]) if ids else torch.zeros(0, 3, 10)
            features.append(F.conv1d(x, p["conv.weight"], p["conv.bias"]))
        pools = [torch.cat(features)] * len(features) if self.sync else features
        out = []
        for p, b, x, pool, ids in zip(params, buffers, features, pools, batches):
            mean, var = pool.mean((0, 2)), pool.var((0, 2), unbiased=False)
            b["bn.running_mean"] = 0.9 * b["bn.running_mean"] + 0.1 * mean.detach()
            b["bn.running_var"] = 0.9 * b["bn.running_var"] + 0.1 * var.detach()
            x = (x - mean[:, None]) / torch.sqrt(var[:, None] + 1e-5) * p["bn.weight"][:, None] + p["bn.bias"][:, None]
            logits = F.relu(x).mean(2) @ p["head.weight"].t() + p["head.bias"]
            target = torch.tensor([i % 4 for i in ids], dtype=torch.int64)
            out.append((F.cross_entropy(logits, target, reduction="none"), torch.ones(len(ids))))
        return out


class Transformer:
    """One attention layer over tokens of rows of unequal length; the output is tied to the embedding."""

    name = "transformer"

    def parameters(self, seed):
        return {
            "embedding.weight": normal((11, 8), 0.5, seed, 1), "position.weight": normal((6, 8), 0.3, seed, 2),
            "attention.qkv.weight": normal((24, 8), 0.4, seed, 3), "attention.out.weight": normal((8, 8), 0.4, seed, 4),
            "mlp.up.weight": normal((16, 8), 0.4, seed, 5), "mlp.up.bias": torch.zeros(16),
            "mlp.down.weight": normal((8, 16), 0.4, seed, 6), "norm.weight": torch.ones(8), "norm.bias": torch.zeros(8),
        }  # fmt: skip

    def buffers(self):
        return {}

    def forward(self, params, buffers, batches):
        out = []
        for p, ids in zip(params, batches):
            tokens = torch.stack([torch.randint(0, 11, (6,), generator=generator(200, i)) for i in ids])
            lengths = torch.tensor([2 + i % 5 for i in ids])
            x = p["embedding.weight"][tokens] + p["position.weight"]
            q, k, v = (x @ p["attention.qkv.weight"].t()).chunk(3, -1)
            scores = (q @ k.transpose(1, 2) / math.sqrt(8)).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9)
            x = x + scores.softmax(-1) @ v @ p["attention.out.weight"].t()
            hidden = F.gelu(x @ p["mlp.up.weight"].t() + p["mlp.up.bias"])
            x = F.layer_norm(x + hidden @ p["mlp.down.weight"].t(), (8,), p["norm.weight"], p["norm.bias"])
            logits = x @ p["embedding.weight"].t()
            target = (tokens * 3 + 1) % 11
            losses = F.cross_entropy(logits.transpose(1, 2), target, reduction="none")
            valid = (torch.arange(6)[None] < lengths[:, None]).float()
            out.append(((losses * valid).sum(1), valid.sum(1)))
        return out


class Mlp:
    """Two layers; two weights of one shape, so that buckets can be mixed up."""

    name = "mlp"

    def __init__(self, masked=False):
        self.masked = masked  # one parameter never has a gradient but 0

    def parameters(self, seed):
        mask = {"mask.weight": torch.ones(3)} if self.masked else {}
        return mask | {
            "body.0.weight": normal((6, 6), 0.5, seed, 1), "body.0.bias": normal((6,), 0.2, seed, 2),
            "body.1.weight": normal((6, 6), 0.5, seed, 3), "body.1.bias": normal((6,), 0.2, seed, 4),
            "action_head.weight": normal((4, 6), 0.5, seed, 5), "action_head.scale": torch.ones(1),
        }  # fmt: skip

    def buffers(self):
        return {}

    def forward(self, params, buffers, batches):
        out = []
        for p, ids in zip(params, batches):
            x = torch.stack([normal((6,), 1, 300, i) for i in ids])
            x = torch.tanh(x @ p["body.0.weight"].t() + p["body.0.bias"])
            x = torch.tanh(x @ p["body.1.weight"].t() + p["body.1.bias"])
            logits = x @ p["action_head.weight"].t() * p["action_head.scale"]
            target = torch.tensor([(i * 5) % 4 for i in ids])
            out.append((F.cross_entropy(logits, target, reduction="none"), torch.ones(len(ids))))
        return out


class Clip:
    """Two encoders and in-batch negatives of all ranks. `wrong`: how the gather goes wrong."""

    name = "clip"

    def __init__(self, wrong=""):
        self.wrong = wrong

    def parameters(self, seed):
        return {
            "vision.weight": normal((5, 6), 0.5, seed, 1), "text.weight": normal((5, 6), 0.5, seed, 2),
            "log_scale": torch.tensor([1.0]),
        }  # fmt: skip

    def buffers(self):
        return {}

    def forward(self, params, buffers, batches):
        rows, columns = [], []
        for p, ids in zip(params, batches):
            x = torch.stack([normal((6,), 1, 400, i) for i in ids])
            y = torch.stack([normal((6,), 1, 500, i) + 0.5 * normal((6,), 1, 400, i) for i in ids])
            rows.append(F.normalize(x @ p["vision.weight"].t(), dim=1))
            columns.append(F.normalize(y @ p["text.weight"].t(), dim=1))
        out, offset = [], 0
        for r, (p, ids) in enumerate(zip(params, batches)):
            gathered = [c.detach() if self.wrong == "detached" or (self.wrong == "own" and k != r) else c
                        for k, c in enumerate(columns)]  # fmt: skip
            scale = p["log_scale"].detach() if self.wrong == "scale" else p["log_scale"]
            logits = rows[r] @ torch.cat(gathered).t() * scale.exp()
            target = torch.arange(len(ids)) + offset
            offset += len(ids)
            out.append((F.cross_entropy(logits, target, reduction="none"), torch.ones(len(ids))))
        return out


OPTIMIZERS = {
    "sgd": lambda p, o: torch.optim.SGD(p, lr=1, momentum=o.get("momentum", 0), weight_decay=o.get("weight_decay", 0)),
    "adam": lambda p, o: torch.optim.Adam(p, lr=1, weight_decay=o.get("weight_decay", 0)),
    "adamw": lambda p, o: torch.optim.AdamW(p, lr=1, weight_decay=o.get("weight_decay", 0)),
}


class Fault:
    """What goes wrong, at `step` (and from then on, unless `once`). Each hook may change what it is given."""

    def __init__(self, step=3, once=False, **hooks):
        self.step, self.once, self.hooks = step, once, hooks

    def __call__(self, hook, step, value, *more):
        acts = step == self.step if self.once else step >= self.step
        return self.hooks[hook](value, *more) if acts and hook in self.hooks else value


class Settings:
    """One run. `order` permutes the rows of each batch (repeats of a reference)."""

    def __init__(self, model, world=1, batch=8, steps=6, seed=1, optimizer=None, clip=0.0, rate=0.05, warmup=0,
                 accumulation=1, fault=None, order=0, declared=True, roles=None, prefix="", state=False, applied=False,
                 noise=False, precision="float32", reduction="mean", resume=0, shuffle=True, samples=24, bucket=1,
                 alike=True, ledger=True, backwards=False, drop=(), average=0.0, evaluates=False, counts=False,
                 shards=False):  # fmt: skip
        """`resume`: steps before it are another trace's. `average`: decay of an average of the weights, a buffer. `counts`: sums of
        two small counts over ranks. `shards`: each rank holds its part of every parameter's rows, and of their gradients.
        """
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})
        self.optimizer = optimizer or {"name": "sgd", "momentum": 0.9}
        self.fault = fault or Fault()

    def but(self, **changes):
        return Settings(**{**{k: v for k, v in self.__dict__.items()}, **changes})

    def in_words(self):
        """Everything but the model and the fault."""
        return repr(sorted((k, str(v)) for k, v in vars(self).items() if k not in ("model", "fault")))

    def name_of_model(self):
        return self.model.name + str(vars(self.model))

    def header(self):
        if not self.declared:
            return None
        declared = {
            "optimizer": dict(self.optimizer), "clip_norm": self.clip, "accumulation": self.accumulation,
            "global_batch": self.batch, "base_rate": self.rate, "precision": self.precision,
            "gradient_reduction": self.reduction,
        }  # fmt: skip
        if self.prefix and self.prefix != "module.":
            declared["strip_prefixes"] = [self.prefix]
        if self.roles:
            declared["parameters"] = [{"prefix": p, "role": r} for p, r in self.roles.items()]
        return declared


def batch_of(s, step, epoch_shift=0):
    per_epoch = s.samples // s.batch
    epoch, k = step // per_epoch + epoch_shift, step % per_epoch
    ids = torch.randperm(s.samples, generator=generator(s.seed, 900, epoch if s.shuffle else 0)).tolist()
    return ids[k * s.batch : (k + 1) * s.batch]


def rate_at(s, step):
    return s.rate * min(1.0, (step + 1) / s.warmup) if s.warmup else s.rate


def whole(grads):
    return math.sqrt(sum(float((g.double() ** 2).sum()) for g in grads.values()))


class Run:
    def __init__(self, s, folder):
        self.s, self.folder = s, folder
        self.params = [{k: v.clone().requires_grad_() for k, v in s.model.parameters(s.seed).items()}
                       for _ in range(s.world)]  # fmt: skip
        self.params = s.fault("initial", 0 if s.fault.step < 0 else -1, self.params)
        self.buffers = [s.model.buffers() for _ in range(s.world)]
        self.optimizers = [self._optimizer(p) for p in self.params]
        self.writers = [TraceWriter(folder, r, s.world, "run-" + folder[-40:], s.header()) for r in range(s.world)]
        self.averages = [{k: v.detach().clone() for k, v in p.items()} for p in self.params] if s.average else None
        self.updates = 0
        self.last = None

    def _optimizer(self, params):
        return OPTIMIZERS[self.s.optimizer["name"]](list(params.values()), self.s.optimizer)

    def go(self):
        if "initial" not in self.s.drop and not self.s.resume:
            for w in self.writers:
                w.begin(-1)
            self._parameters()
            for w in self.writers:
                w.end()
        for step in range(self.s.steps):
            self._step(step)
        for w in self.writers:
            w.finish()
        return self.folder

    def _parameters(self):
        s = self.s
        for r, (w, p, b, o) in enumerate(zip(self.writers, self.params, self.buffers, self.optimizers)):
            for name, value in p.items():
                if name not in s.drop:
                    w.tensor("parameters", s.prefix + name, self._held(value, r), alike=s.alike and not s.shards)
            for name, value in self.averages[r].items() if self.averages else ():
                w.tensor("parameters", f"buffer/average.{s.prefix}{name}", value, alike=s.alike)
            for name, value in b.items():
                w.tensor("parameters", "buffer/" + s.prefix + name, value, alike=s.alike)
            if not s.state:
                continue
            for name, value in p.items():
                for key, what in (("momentum_buffer", "first"), ("exp_avg", "first"), ("exp_avg_sq", "second")):
                    if o.state.get(value, {}).get(key) is not None:
                        w.tensor("optimizer state", f"{what}_moment/{s.prefix}{name}", o.state[value][key], alike=True)
            w.scalar("optimizer state", "updates", self.updates, alike=True)

    def _held(self, tensor, rank):
        """What the rank holds of a parameter or its reduced gradient."""
        return tensor.tensor_split(self.s.world)[rank] if self.s.shards and tensor.shape[0] >= self.s.world else tensor

    def _evaluated(self):
        with torch.no_grad():
            ((row, count),) = self.s.model.forward(self.params[:1], [self.s.model.buffers()], [list(range(1000, 1008))])
        return float(row.sum() / count.sum())

    def _ids(self, step):
        s = self.s
        ids = s.fault("batch", step, batch_of(s, step), step, s)
        if s.order:
            place = torch.randperm(len(ids), generator=generator(s.order, step)).tolist()
            ids = [ids[i] for i in place]
        return s.fault("ids", step, [ids[r :: s.world] for r in range(s.world)], step, s)

    def _losses(self, step, ids):
        """Per rank: row losses, counts, and the loss whose mean over ranks is the batch's."""
        s = self.s
        total, micro = None, s.accumulation
        rows, counts, losses = [[] for _ in ids], [[] for _ in ids], [0.0] * len(ids)
        everything = s.model.forward if s.precision == "float32" else self._low
        parts = [[r[m * len(r) // micro : (m + 1) * len(r) // micro] for r in ids] for m in range(micro)]
        outs = [everything(self.params, self.buffers, part) for part in parts]
        total = sum(c.sum() for out in outs for _, c in out)
        for out in outs:
            for r, (row, count) in enumerate(out):
                weight = (s.world if s.reduction == "mean" else 1) / total
                mean = s.fault("mean", step, row.sum() * weight, row, count, r, s)
                losses[r] = losses[r] + mean
                rows[r].append(row.detach())
                counts[r].append(count)
        losses = [s.fault("loss", step, loss, r, s) for r, loss in enumerate(losses)]
        return losses, [torch.cat(r) for r in rows], float(total)

    def _low(self, params, buffers, parts):
        dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[self.s.precision]
        with torch.autocast("cpu", dtype=dtype):
            return [(row.float(), count) for row, count in self.s.model.forward(params, buffers, parts)]

    def _step(self, step):
        s, w = self.s, self.writers
        ids = self._ids(step)
        rates = s.fault("rate", step, [rate_at(s, step)] * s.world, step, s)
        losses, rows, total = self._losses(step, ids)
        weight = len(losses) if s.reduction == "mean" else 1
        mean = sum(losses) / (len(losses) if s.reduction == "mean" else 1)
        local = []
        for r in range(s.world):
            found = torch.autograd.grad(mean, list(self.params[r].values()), retain_graph=True, allow_unused=True)
            local.append({k: (torch.zeros_like(v) if g is None else g * weight)
                          for (k, v), g in zip(self.params[r].items(), found)})  # fmt: skip
        local = s.fault("local", step, local, self, s)
        divisor = s.world if s.reduction == "mean" else 1
        one = {k: sum(g[k] for g in (local[::-1] if s.backwards else local)) / divisor for k in local[0]}
        reduced = [dict(one) for _ in range(s.world)]
        reduced = s.fault("reduced", step, reduced, local, self, s)
        norms = s.fault("norm", step, [whole(g) for g in reduced], reduced, local, s)
        factors = [min(1.0, s.clip / (n + 1e-6)) if s.clip else 1.0 for n in norms]
        factors = s.fault("clip", step, factors, norms, local, s)
        applied = [{k: v * f if f != 1.0 else v for k, v in g.items()} for g, f in zip(reduced, factors)]
        before = [{k: v.detach().clone() for k, v in p.items()} for p in self.params]
        for r in range(s.world):
            o = self.optimizers[r]
            for group in o.param_groups:
                group["lr"] = rates[r]
            s.fault("optimizer", step, o, r, s)
            for k, v in self.params[r].items():
                v.grad = applied[r][k].clone()
            used = s.fault("used_rate", step, rates[r], s)
            for group in o.param_groups:
                group["lr"] = used
            o.step()
        self.updates += 1
        self.buffers = s.fault("buffers", step, self.buffers, s)
        self.params = s.fault("after", step, self.params, before, self, s)
        for average, p in zip(self.averages or (), self.params):
            for k, v in p.items():
                average[k] = s.average * average[k] + (1 - s.average) * v.detach()
        self.last = {"local": local, "reduced": reduced, "ids": ids, "applied": applied}
        if step < s.resume:
            return
        metric = s.fault("metric", step, self._evaluated()) if s.evaluates else None
        odd = [torch.tensor([float(sum(i % 2 for i in own)), float(sum(i % 2 == 0 for i in own))]) for own in ids]
        for r in range(s.world):
            w[r].begin(step)
            w[r].samples(ids[r])
            stream = sum((i * 2654435761 + step * 40503) % (1 << 61) for i in ids[r])
            w[r].random("dropout", *s.fault("stream", step, (stream, 3 * len(ids[r])), r, step, s))
            w[r].scalar("control", "learning_rate", rates[r], alike=True)
            if s.ledger and s.model.name == "transformer":
                count = torch.tensor([float(rows[r].numel())])
                w[r].collective("all_reduce", "data", "valid", tensor_hash(count), tensor_hash(torch.tensor([total])),
                                (1,), "sum")  # fmt: skip
            if s.counts:
                w[r].collective("all_reduce", "data", "odd and even", tensor_hash(odd[r]), tensor_hash(sum(odd)), (2,), "sum")
            w[r].scalar("loss", "loss", float(losses[r]))
            w[r].tensor("loss", "row_losses", rows[r], ids=ids[r])
            for k in local[r]:
                w[r].tensor("local gradients", s.prefix + k, local[r][k])
            if s.ledger and s.world > 1:
                self._buckets(w[r], local[r], reduced[r], r, step)
            for k in reduced[r]:
                w[r].tensor("reduced gradients", s.prefix + k, self._held(reduced[r][k], r), alike=not s.shards)
            w[r].scalar("gradient norm", "gradient_norm", norms[r], alike=True)
            if s.applied:
                for k in applied[r]:
                    w[r].tensor("applied gradients", s.prefix + k, applied[r][k], alike=True)
        self._parameters()
        for each in w:
            if metric is not None:
                each.scalar("evaluation", "held_out_loss", metric, alike=True)
            each.end()

    def _buckets(self, w, local, reduced, rank, step):
        names = list(local)
        size = -(-len(names) // self.s.bucket)
        calls = []
        for b in range(self.s.bucket):
            mine = names[b * size : (b + 1) * size]
            elements = sum(local[k].numel() for k in mine)
            calls.append((f"bucket {b}", sum(tensor_hash(local[k]) for k in mine) & (1 << 64) - 1,
                          sum(tensor_hash(reduced[k]) for k in mine) & (1 << 64) - 1, elements))  # fmt: skip
        for tag, inside, outside, elements in self.s.fault("calls", step, calls, rank, self.s):
            w.collective("reduce_gradients", "gradients", tag, inside, outside, (elements,), self.s.reduction)
