"""Traces a rank of a PyTorch program: what a user's tracer would see, written by the conformance tests' writer."""

import contextlib
import pathlib
import sys

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "conformance"))

from trace_writer import Placement, TraceWriter, tensor_hash  # noqa: E402

WORD = (1 << 64) - 1
MOMENTS = {"momentum_buffer": "first_moment", "exp_avg": "first_moment", "exp_avg_sq": "second_moment"}


def placement_of(tensor):
    if not isinstance(tensor, DTensor):
        return getattr(tensor, "placement", None)
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    replicated = all(p.is_replicate() for p in tensor.placements)
    return Placement(tensor.shape, (0,) * tensor.dim() if replicated else offset, replicated)


def held(tensor):
    """The rank's own part."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def signed(word):
    return word - (1 << 64) if word >> 63 else word


def row_hashes(tensor):
    return torch.tensor([signed(tensor_hash(row)) for row in tensor], dtype=torch.int64)


def draws_between(before, after):
    """The 32-bit numbers that a CPU generator (a Mersenne twister of 624 words) gave between two of its states."""
    one = torch.Generator()
    one.set_state(before)
    for blocks in range(1000):
        now = one.get_state()
        if torch.equal(now[24:5016], after[24:5016]):
            left = [int(state[8:12].view(torch.int32)) for state in (now, after)]
            return 624 * blocks + left[0] - left[1]
        torch.empty(624, dtype=torch.int32).random_(generator=one)
    return 0


class Probe:
    """`model`: the bare module. `alike`: whether plain tensors are equal on all ranks. Keywords: what the header declares."""

    def __init__(self, run, model, optimizer, alike=True, **declared):
        self.run, self.model, self.optimizer, self.alike = run, model, optimizer, alike
        if "optimizer" not in declared and type(optimizer) in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
            declared["optimizer"] = self._optimizer()
        declared = {k: v for k, v in declared.items() if v is not None}
        self.writer = TraceWriter(run.folder, run.rank, run.world, run.folder[-60:], declared, trainer="real")
        self.params = dict(model.named_parameters())
        self.parts, self._seen, self._listening = [], None, True
        self.updates = 0
        for name, p in self.params.items():
            if p.requires_grad:
                self._listen(name, p)

    def _optimizer(self):
        group = self.optimizer.param_groups[0]
        if isinstance(self.optimizer, torch.optim.SGD):
            return {"name": "sgd", "momentum": group["momentum"], "weight_decay": group["weight_decay"]}
        return {"name": type(self.optimizer).__name__.lower(), "betas": list(group["betas"]), "eps": group["eps"],
                "weight_decay": group["weight_decay"]}  # fmt: skip

    # What autograd adds to a parameter's gradient, before any reduction.

    def _listen(self, name, parameter):
        def hook(gradient):
            if self._listening and self._seen is not None:
                if isinstance(gradient, DTensor) and any(kind.is_partial() for kind in gradient.placements):
                    gradient = gradient.redistribute(placements=parameter.placements)  # A sum within the backward pass.
                found = held(gradient).clone()
                self._seen[name] = self._seen[name] + found if name in self._seen else found

        parameter.register_hook(hook)

    def listen_to_unsharded(self, *modules):
        """FSDP2's whole parameters, which exist from the first forward on; their gradients are reduced after these hooks."""
        names = {id(p): name for name, p in self.params.items()}
        for module in modules:
            for group in module._get_fsdp_state()._fsdp_param_groups:
                for p in group.fsdp_params:
                    if p.sharded_param.requires_grad and not hasattr(p, "listened"):
                        p.listened = True
                        self._listen(names[id(p.sharded_param)], p.unsharded_param)

    @contextlib.contextmanager
    def deaf(self):
        self._listening = False
        yield
        self._listening = True

    # The step, in the order of its phases.

    def initial(self, averages=None):
        self.writer.begin(-1)
        self.parameters()
        if averages is not None:
            self.averages(averages)
        self.writer.end()

    def begin(self, step, ids, inputs=None, labels=None, label_placement=None, rate=None):
        self.writer.begin(step)
        self.parts, self.rows, self.micro = [], [], []
        self.ids = list(ids)
        self.writer.samples(self.ids)
        if inputs is not None:
            self.writer.tensor("inputs", "inputs", row_hashes(inputs), ids=self.ids)
        if labels is not None:
            self.writer.tensor("inputs", "labels", labels, ids=self.ids, placement=label_placement)
        if rate is None and self.optimizer is not None:
            rate = self.optimizer.param_groups[0]["lr"]
        if rate is not None:
            self.writer.scalar("control", "learning_rate", rate, alike=True)

    def stream(self, name, before, after):
        self.writer.random(name, tensor_hash(before.view(torch.int64)), draws_between(before, after))

    @contextlib.contextmanager
    def micro_step(self):
        """Around the backward pass, or passes, of one micro-step."""
        self._seen = {}
        yield
        self.parts.append(self._seen)
        self._seen = None

    def losses(self, ids, rows, counts=None, width=None, divided_by=None):
        """Of one micro-step: losses of its rows, their tokens, and the padded width."""
        self.rows.append((list(ids), rows.detach(), counts, width))
        if counts is not None:
            own = int(counts.sum())
            self.micro.append((float(rows.detach().double().sum()) / max(own, 1), own, len(ids)))

    def loss(self, value, terms=None):
        """`terms`: of the named losses, value and weight."""
        w = self.writer
        w.scalar("loss", "loss", float(value))
        for name, (term, weight) in (terms or {}).items():
            w.scalar("loss", f"loss/{name}", float(term))
            w.scalar("loss", f"weight/{name}", float(weight))
        if not self.rows:
            return
        ids = [i for part in self.rows for i in part[0]]
        w.tensor("loss", "row_losses", torch.cat([part[1] for part in self.rows]), ids=ids)
        if self.rows[0][2] is not None:
            w.tensor("loss", "row_counts", torch.cat([part[2] for part in self.rows]), ids=ids)
            widths = torch.tensor([part[3] for part in self.rows for _ in part[0]])
            w.tensor("loss", "row_widths", widths, ids=ids)
            if len(self.micro) > 1:
                w.tensor("loss", "micro_losses", torch.tensor([m[0] for m in self.micro], dtype=torch.float64))
                w.tensor("loss", "micro_counts", torch.tensor([m[1] for m in self.micro]))
                w.tensor("loss", "micro_rows", torch.tensor([m[2] for m in self.micro]))

    def steps(self, count):
        """Of a training."""
        self.initial()
        yield from range(count)
        self.finish()

    def gradients(self, ids=None, rows=None, loss=None):
        """What the step's only backward pass has led to."""
        if rows is not None:
            self.losses(ids, rows)
            self.loss(rows.mean() if loss is None else loss)
        self.local()
        self.reduced()

    def update(self, optimizer, *of_rows):
        self.gradients(*of_rows)
        optimizer.step()
        self.end()

    def local(self, named=None, held_by=None):
        """Sums of what each micro-step added; parts of them if there are several. `named`: gradients by named loss.

        `held_by`: the rank's gradients before the reduction, if the program adds them up itself.
        """
        whole = {}
        for part in self.parts:
            for name, gradient in part.items():
                whole[name] = whole[name] + gradient if name in whole else gradient
        parts = {f"micro {k}": part for k, part in enumerate(self.parts)} if len(self.parts) > 1 else {}
        parts |= {f"loss {term}": gradients for term, gradients in (named or {}).items()}
        for label, gradients in parts.items():
            for name, gradient in whole.items():
                part = gradients.get(name)
                part = torch.zeros_like(gradient) if part is None else held(part)
                dot = float((part.double() * gradient.double()).sum())
                self.writer.tensor("gradient parts", f"{label}/{name}", part, dot=dot)
        for name, gradient in (held_by or whole).items():
            placement = None if isinstance(self.params[name], DTensor) and gradient.shape == self.params[name].shape else \
                placement_of(self.params[name])  # fmt: skip
            self.writer.tensor("local gradients", name, gradient, placement=placement)

    def _by_name(self, phase, tensors, prefix=""):
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            placement = placement_of(tensor) or placement_of(self.params[name])
            self.writer.tensor(phase, prefix + name, held(tensor), alike=self.alike and placement is None, placement=placement)

    def reduced(self, gradients=None):
        if gradients is None:
            gradients = {name: p.grad for name, p in self.params.items()}
        self._by_name("reduced gradients", gradients)

    def norm(self, value):
        self.writer.scalar("gradient norm", "gradient_norm", float(value), alike=True)

    def applied(self, gradients=None):
        if gradients is None:
            gradients = {name: p.grad for name, p in self.params.items()}
        self._by_name("applied gradients", gradients)

    def parameters(self):
        self._by_name("parameters", self.params)
        for name, buffer in self.model.named_buffers():
            self.writer.tensor("parameters", "buffer/" + name, buffer, alike=False)

    def state(self):
        self.updates += 1
        counts = set()
        for name, p in self.params.items():
            for key, value in self.optimizer.state.get(p, {}).items():
                if key in MOMENTS and value is not None:
                    self._by_name("optimizer state", {name: value}, MOMENTS[key] + "/")
                elif key == "step":
                    counts.add(int(value))
        self.writer.scalar("optimizer state", "updates", max(counts, default=self.updates), alike=True)

    def averages(self, averages):
        self._by_name("averaged weights", averages)

    def end(self, averages=None):
        self.parameters()
        if self.optimizer is not None:
            self.state()
        if averages is not None:
            self.averages(averages)
        self.writer.end()

    def finish(self):
        self.writer.finish()

    def collective(self, op, group, tag, given, got, reduction="", root=-1):
        self.writer.collective(op, group, tag, tensor_hash(given), tensor_hash(got), tuple(given.shape), reduction,
                               given.dtype, root)  # fmt: skip
