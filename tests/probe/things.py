"""What people do to a model between two steps, with no line and with three: the trainer ends with the bits that it has without the probe, and
three steps of the model are recorded, none of a copy's."""

import copy
import io
import os
import pickle
import warnings

import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as Ddp
from torch.nn.utils import parametrizations, parametrize, prune

import lockstep_probe
from case import Case, need
from lockstep_probe import trace_file, zero

X = torch.randn((6, 4), generator=torch.Generator().manual_seed(5))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class OfItsOwn(Net):
    """Says itself what a copy of it holds."""

    def __getstate__(self):
        return self.__dict__.copy()

    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made


def step(model, optimizer, x=X):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()


def unpickled(data, *_):
    need(b"lockstep" not in data, "what was pickled names the probe")
    return pickle.loads(data)  # noqa: S301


def saved(what):
    file = io.BytesIO()
    torch.save(what, file)
    need(b"lockstep" not in file.getvalue(), "the file names the probe")
    file.seek(0)
    return torch.load(file, weights_only=False)


def trained(model):
    """A copy's own training: nothing of it is the model's."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    return model(X)


def averaged(m, _o, _d):
    average = torch.optim.swa_utils.AveragedModel(m)
    average.update_parameters(m)
    return average(X)


def scripted(m, _o, _d):
    return torch.jit.script(m)(X), torch.jit.script(copy.deepcopy(m))(X)


def swapped(m, _o, _d):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        m.double()
        m.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def functional(m, _o, _d):
    parameters = {name: p.detach().clone().requires_grad_() for name, p in m.named_parameters()}
    torch.func.functional_call(m, parameters, (X,)).sum().backward()
    return [p.grad for p in parameters.values()]


def func_grad(m, _o, _d):
    def loss(parameters, x):
        return torch.func.functional_call(m, parameters, (x[None],)).pow(2).sum()

    parameters = {name: p.detach() for name, p in m.named_parameters()}
    return [*torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, X).values()]


def ensemble(m, _o, _d):
    parameters, buffers = torch.func.stack_module_state([copy.deepcopy(m) for _ in range(3)])
    base = copy.deepcopy(m).to("meta")
    return torch.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (X,)))(parameters, buffers)


def checkpointed(m, o, folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    state, optim = get_state_dict(m, o)
    dcp.save({"m": state, "o": optim}, checkpoint_id=f"{folder}/dcp")
    dcp.load({"m": state, "o": optim}, checkpoint_id=f"{folder}/dcp")
    set_state_dict(m, o, model_state_dict=state, optim_state_dict=optim)


def parametrized(m, _o, _d):
    parametrizations.weight_norm(m.first)
    found = copy.deepcopy(m)(X).detach()
    parametrize.remove_parametrizations(m.first, "weight")
    return found


def pruned(m, _o, _d):
    prune.l1_unstructured(m.first, "weight", amount=2)
    found = m(X).detach()
    prune.remove(m.first, "weight")
    return found, copy.deepcopy(m)(X)


def wrapped_again(m, o, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet{os.urandom(4).hex()}", rank=0, world_size=1)
    try:
        step(Ddp(Ddp(copy.deepcopy(m))), torch.optim.SGD(Net().parameters(), lr=0.1))
        return copy.deepcopy(Ddp(copy.deepcopy(m)).module)(X)
    finally:
        torch.distributed.distributed_c10d._update_default_pg(None)


def by_multiprocessing(m, _o, _d):
    from multiprocessing.reduction import ForkingPickler

    return pickle.loads(bytes(ForkingPickler.dumps(m)))(X)  # noqa: S301


def fake(m, _o, _d):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        m(torch.empty(6, 4))


def counted(m, _o, _d):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as flops, torch.no_grad():
        m(X)
    return torch.tensor(flops.get_total_flops())


def replicated(m, _o, _d):
    replica = m._replicate_for_data_parallel()
    replica._parameters = dict(m._parameters)
    return replica.first(X), nn.DataParallel(m).module is m


def quantized(m, _o, _d):
    return torch.ao.quantization.quantize_dynamic(m, {nn.Linear})(X)


def hooks_cleared(m, _o, _d):
    for each in m.modules():
        each._forward_pre_hooks.clear()
        each._forward_hooks.clear()


def added_hooks(m, _o, _d):
    handle = m.register_forward_pre_hook(lambda _m, args: (args[0] * 2,))
    found = copy.deepcopy(m)(X)
    handle.remove()
    return found, m(X).detach()


def optimizer_copied(m, o, _d):
    made, kept = copy.deepcopy(o), unpickled(pickle.dumps(o))
    both = saved({"m": m, "o": o})
    step(both["m"], both["o"])
    return [*both["m"].parameters(), *(p for each in (made, kept) for group in each.param_groups for p in group["params"])]


def state_dicts(m, o, _d):
    m.load_state_dict(saved(m.state_dict()), assign=False)
    o.load_state_dict(saved(o.state_dict()))


def unused_copy_backward(m, _o, _d):
    """Between the model's own forward and backward pass: a step is open."""
    own, made = m(X).sum(), copy.deepcopy(m)
    (made(X).sum() * 1000).backward()
    return [own.detach(), *(p.grad for p in made.parameters())]


def assigned(m, o, _d):
    m.load_state_dict({name: p.clone() for name, p in m.state_dict().items()}, assign=True)
    o.param_groups[0]["params"] = list(m.parameters())


def graph_copied(m, _o, _d):
    graph = torch.fx.symbolic_trace(m)
    return graph(X), copy.deepcopy(graph)(X), unpickled(pickle.dumps(graph))(X)


def plain_tensor(m, _o, _d):
    return [copy.deepcopy(p) for p in m.parameters()] + [unpickled(pickle.dumps(p)) for p in m.parameters()]


THINGS = {
    "nothing": lambda m, o, d: None,
    "copy.deepcopy, whose copy trains": lambda m, o, d: trained(copy.deepcopy(m)),
    "copy.deepcopy, whose copy computes gradients": unused_copy_backward,
    "copy.copy": lambda m, o, d: copy.copy(m)(X).detach(),
    "pickle": lambda m, o, d: trained(unpickled(pickle.dumps(m))),
    "torch.save of the module": lambda m, o, d: trained(saved(m)),
    "state dicts, saved and loaded": state_dicts,
    "a state dict that is assigned": assigned,
    "the optimizer copied, pickled and saved with its model": optimizer_copied,
    "parameters copied and pickled": plain_tensor,
    "AveragedModel": averaged,
    "torch.jit.script": scripted,
    "torch.jit.trace": lambda m, o, d: torch.jit.trace(m, X)(X),
    "torch.jit.save": lambda m, o, d: torch.jit.save(torch.jit.script(m), io.BytesIO()),
    "torch.fx, its graph copied and pickled": graph_copied,
    "torch.export": lambda m, o, d: torch.export.export(m, (X,)).module()(X),
    "torch.compile": lambda m, o, d: torch.compile(m, backend="eager", fullgraph=True)(X).detach(),
    "quantize_dynamic": quantized,
    "functional_call": functional,
    "grad and vmap": func_grad,
    "vmap over an ensemble": ensemble,
    "torch.distributed.checkpoint": checkpointed,
    "apply": lambda m, o, d: m.apply(lambda each: each.train()) and None,
    "parametrizations": parametrized,
    "pruning": pruned,
    "spectral_norm of a copy": lambda m, o, d: nn.utils.spectral_norm(copy.deepcopy(m).first)(X),
    "hooks cleared by others": hooks_cleared,
    "others' hooks beside it": added_hooks,
    "DataParallel and its replicas": replicated,
    "DistributedDataParallel around a copy, twice": wrapped_again,
    "multiprocessing's pickle": by_multiprocessing,
    "share_memory": lambda m, o, d: m.share_memory() and None,
    "parameters that are swapped": swapped,
    "fake tensors": fake,
    "a counter of operations": counted,
    "activation checkpointing of a copy": lambda m, o, d: torch.utils.checkpoint.checkpoint(copy.deepcopy(m), X, use_reentrant=False),
    "cast to another type and back": lambda m, o, d: m.to(torch.float64).to(torch.float32) and None,
}


def flat(found):
    if isinstance(found, torch.Tensor):
        found = getattr(found, "_local_tensor", found)
        return [found.detach().dequantize().reshape(-1).double()]
    return [t for each in found for t in flat(each)] if isinstance(found, (list, tuple)) else []


def run(kind, thing, folder, lines):
    """Three steps, the thing between: what the trainer ends with."""
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    probe = lockstep_probe.attach(model, optimizer, out=folder) if lines else None
    found = []
    for number in range(3):
        if number or thing is THINGS["torch.jit.trace"]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found += flat(thing(model, optimizer, folder))
        step(model, optimizer, X + number)
        if probe is not None:
            probe.step()
    return flat(list(model.parameters())) + flat([list(s.values()) for s in optimizer.state.values()]) + found


def check(thing, kind=Net, world=1):
    def on_bench(bench):
        def program(rank):
            if world == 1:
                torch.distributed.destroy_process_group()
            before = {}
            for name in ("without", "lines", "zero"):
                folder = f"{rank.folder}/{name}"
                os.makedirs(folder, exist_ok=True)
                if name == "zero":
                    os.environ["LOCKSTEP_TRACE"] = folder
                    zero.arm()
                before[name] = run(kind, thing, folder, name == "lines")
                for probe in __import__("lockstep_probe.patches").patches.probes():
                    probe.finish()
                if name != "without":
                    steps = {s: records for s, records in trace_file.read_steps(f"{folder}/rank-{rank.rank}.trace") if s >= 0}
                    losses = [float(r.values) for records in steps.values() for r in records if r.name == "loss"]
                    assert list(steps) == [0, 1, 2] and len(losses) == 3 and max(losses) < 100, f"{name}: recorded {list(steps)}, losses {losses}"
                    same = len(before[name]) == len(before["without"])
                    assert same and all(torch.equal(a, b) for a, b in zip(before[name], before["without"])), f"{name}: bits"
            if world == 1:
                torch.distributed.init_process_group("gloo", store=torch.distributed.FileStore(f"{rank.folder}/end", 1), rank=0, world_size=1)

        said = "".join(bench.run(program, world, "run"))
        need("nothing is recorded" not in said and "Error" not in said, f"said: {said}")
        return ""

    return on_bench


CASES = [Case(f"things: {name}", check(thing)) for name, thing in THINGS.items()]
CASES += [
    Case("things: a checkpoint of FSDP2, 2 ranks", check(checkpointed, lambda: fully_shard(Net()), 2)),
    Case("things: a copy of what DDP holds, 2 ranks", check(lambda m, o, d: trained(copy.deepcopy(m.module)), lambda: Ddp(Net()), 2)),
    Case("things: a second DDP around it, 2 ranks", check(lambda m, o, d: Ddp(m.module)(X).sum().backward(), lambda: Ddp(Net()), 2)),
    Case("things: DDP itself copied and saved, 2 ranks", check(lambda m, o, d: [copy.deepcopy(m).module(X), saved(m).module(X)], lambda: Ddp(Net()), 2)),
]
CASES += [Case("things: a module that says itself what it holds", check(lambda m, o, d: [trained(copy.deepcopy(m)), trained(pickle.loads(pickle.dumps(m)))],  # noqa: S301
                                                                       OfItsOwn))]  # fmt: skip
