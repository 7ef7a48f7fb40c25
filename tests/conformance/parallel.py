"""Tensor-parallel and pipeline runs of two ranks each, in one or two replicas, traced rank by rank."""

import torch
import torch.nn.functional as F

from foreign import Fault, batch_of, generator, normal, whole
from trace_writer import TraceWriter, tensor_hash


class Parallel:
    """`kind`: tensor (both ranks of a replica hold shards of the same names) or pipeline (a stage each).

    Rank 2 * d + t is rank t of replica d.
    """

    name = "parallel"

    def __init__(self, kind, replicas=1, batch=8, steps=6, seed=1, fault=None, order=0, declared=True, samples=24):
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})
        self.fault = fault or Fault()
        self.shuffle, self.world = True, 2 * replicas

    def but(self, **changes):
        keys = ("kind", "replicas", "batch", "steps", "seed", "fault", "order", "declared", "samples")
        return Parallel(**{**{k: getattr(self, k) for k in keys}, **changes})

    def in_words(self):
        """Everything but the model and the fault."""
        return repr(sorted((k, str(v)) for k, v in vars(self).items() if k not in ("model", "fault")))

    def name_of_model(self):
        return self.kind

    def header(self):
        if not self.declared:
            return None
        d = range(self.replicas)
        inner = "tensor" if self.kind == "tensor" else "stages"
        return {
            "optimizer": {"name": "sgd"}, "global_batch": self.batch,
            "groups": {**{f"{inner} {k}": [2 * k, 2 * k + 1] for k in d},
                       **{f"replicas {t}": [2 * k + t for k in d] for t in range(2)}},
            "replicas": [[2 * k + t for k in d] for t in range(2)],
        }  # fmt: skip

    def shards(self):
        up, bias = normal((8, 6), 0.4, self.seed, 1), normal((8,), 0.1, self.seed, 2)
        down, last = normal((4, 8), 0.4, self.seed, 3), normal((4,), 0.1, self.seed, 4)
        if self.kind == "tensor":
            return [{"up.weight": up[4 * t : 4 * t + 4], "up.bias": bias[4 * t : 4 * t + 4],
                     "down.weight": down[:, 4 * t : 4 * t + 4], "last.bias": last} for t in range(2)]  # fmt: skip
        return [{"up.weight": up, "up.bias": bias}, {"down.weight": down, "last.bias": last}]

    def go_to(self, folder):
        params = [{k: v.clone().requires_grad_() for k, v in self.shards()[r % 2].items()} for r in range(self.world)]
        writers = [TraceWriter(folder, r, self.world, "run-" + folder[-40:], self.header()) for r in range(self.world)]
        self.last = None
        for step in range(self.steps):
            self._step(step, params, writers)
        for w in writers:
            w.finish()
        return folder

    def _step(self, step, params, writers):
        ids = batch_of(self, step)
        if self.order:
            ids = [ids[i] for i in torch.randperm(len(ids), generator=generator(self.order, step)).tolist()]
        local, losses, of_replica, hidden = [], [], [], []
        for d in range(self.replicas):
            mine = ids[d :: self.replicas]
            a, b = params[2 * d], params[2 * d + 1]
            x = torch.stack([normal((6,), 1, 600, i) for i in mine])
            if self.kind == "tensor":
                halves = [torch.tanh(x @ p["up.weight"].t() + p["up.bias"]) @ p["down.weight"].t() for p in (a, b)]
                halves = self.fault("halves", step, halves)
                hidden.append(halves)
                logits = halves[0] + halves[1] + a["last.bias"]
            else:
                h = torch.tanh(x @ a["up.weight"].t() + a["up.bias"])
                hidden.append([h, h])
                logits = h @ b["down.weight"].t() + b["last.bias"]
            target = torch.tensor([i % 4 for i in mine])
            rows = F.cross_entropy(logits, target, reduction="none")
            losses.append(rows.mean())
            of_replica.append((mine, rows.detach()))
        for r in range(self.world):
            d = r // 2
            names = list(params[r])
            found = torch.autograd.grad(losses[d], [params[r][k] for k in names], retain_graph=True, allow_unused=True)
            local.append({k: g for k, g in zip(names, found)})
            if self.kind == "tensor":  # The bias is the same on both ranks, and so is its gradient.
                local[r]["last.bias"] = torch.autograd.grad(losses[d], params[2 * d]["last.bias"], retain_graph=True)[0]
        local = self.fault("local", step, local, self, self)
        reduced = []
        for r in range(self.world):
            peers = [local[q] for q in range(r % 2, self.world, 2)]
            reduced.append({k: sum(g[k] for g in peers) / len(peers) for k in local[r]})
        reduced = self.fault("reduced", step, reduced, local, self, self)
        for r in range(self.world):
            d, t = divmod(r, 2)
            w = writers[r]
            w.begin(step)
            w.samples(of_replica[d][0])
            w.scalar("control", "learning_rate", 0.1, alike=True)
            inner = ("tensor" if self.kind == "tensor" else "stages") + f" {d}"
            calls = []
            if self.kind == "tensor":
                total = hidden[d][0] + hidden[d][1]
                calls.append(("all_reduce", inner, "down", tensor_hash(hidden[d][t]), tensor_hash(total), total, "sum"))
                norm = torch.tensor([float(step // 2)])
                calls.append(("all_reduce", inner, "count", tensor_hash(norm + t), tensor_hash(2 * norm + 1), norm, "sum"))
            else:
                h = hidden[d][0]
                calls.append(("send" if t == 0 else "recv", inner, "hidden", tensor_hash(h), tensor_hash(h), h, ""))
            for k in local[r]:
                calls.append(("all_reduce", f"replicas {t}", k, tensor_hash(local[r][k]), tensor_hash(reduced[r][k]),
                              local[r][k], "mean"))  # fmt: skip
            for op, group, tag, inside, outside, tensor, reduction in self.fault("calls", step, calls, r, self):
                if op != "all_reduce" or group.startswith(inner) or self.replicas > 1:
                    w.collective(op, group, tag, inside, outside, tuple(tensor.shape), reduction)
            w.scalar("loss", "loss", float(losses[d].detach()))
            w.tensor("loss", "row_losses", of_replica[d][1], ids=of_replica[d][0])
            for k in local[r]:
                w.tensor("local gradients", k, local[r][k])
            for k in reduced[r]:
                w.tensor("reduced gradients", k, reduced[r][k])
            with torch.no_grad():
                for k, v in params[r].items():
                    v -= 0.1 * reduced[r][k]
            for k, v in params[r].items():
                w.tensor("parameters", k, v)
            w.end()
        self.last = {"local": local, "reduced": reduced}

