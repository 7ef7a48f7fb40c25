"""What a trainer's model is: the module inside its wrappers, names of parameters, a rank's part of each, which ranks share what."""

import gc
import sys
import weakref

import torch

from lockstep_probe.trace_file import Placement

WRAPPED = weakref.WeakKeyDictionary()  # DistributedDataParallel objects, from when this module was loaded on, the last one last
_WRAPPERS = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
MOMENTS = {
    "momentum_buffer": "first_moment", "exp_avg": "first_moment", "exp_avg_sq": "second_moment", "sum": "second_moment",
    "square_avg": "second_moment",
}  # fmt: skip
PRECISIONS = ("float32", "float64", "bfloat16", "float16")
MESH_WORDS = {"tp": "tensor", "pp": "pipeline", "cp": "context", "sp": "sequence", "ep": "expert"}


def bare(model):
    """The module inside DistributedDataParallel, torch.compile and wrappers that hold one as `.module`."""
    seen = set()
    while id(model) not in seen:
        seen.add(id(model))
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            WRAPPED.setdefault(model)
        inner = getattr(model, "_orig_mod", None)
        if not isinstance(inner, torch.nn.Module) and isinstance(model, _WRAPPERS):
            inner = model.module
        if isinstance(inner, torch.nn.Module):
            model = inner
    return model


def plain_names(module, named):
    """(name, tensor) pairs with names as they are without wrappers within the module, such as a loss that holds a DistributedDataParallel."""
    within = [f"{path}.module." for path, each in module.named_modules() if path and isinstance(each, _WRAPPERS)]
    for name, tensor in named:
        for start in sorted(within, key=len, reverse=True):
            if name.startswith(start):
                name = start.removesuffix("module.") + name.removeprefix(start)
        yield name, tensor


def named(modules, tensors):
    """(prefix, name, tensor) of all modules' `named_parameters` or `named_buffers`; of several modules the prefix tells which."""
    for number, module in enumerate(modules):
        prefix = f"model {number}." if len(modules) > 1 else ""
        for name, tensor in plain_names(module, getattr(module, tensors)()):
            yield prefix, name, tensor


def is_compiled(model):
    return any(hasattr(m, "_orig_mod") for m in (model, getattr(model, "module", None))) or any(
        getattr(m, "_compiled_call_impl", None) is not None for m in bare(model).modules())  # fmt: skip


def dtensor():
    """The class of sharded tensors; None where no program has loaded it, and so there is none."""
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def is_sharded(tensor):
    if type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter:
        return False
    kind = dtensor()
    return kind is not None and isinstance(tensor, kind)


def placement_of(tensor):
    if not is_sharded(tensor):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    replicated = all(p.is_replicate() for p in tensor.placements)
    return Placement(tuple(tensor.shape), (0,) * tensor.dim() if replicated else tuple(offset), not replicated)


def held(tensor):
    """The rank's own part; of a sparse tensor, such as an embedding's gradient, all values."""
    tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _objects(kind):
    """Those of the process. By their types alone: `isinstance` would ask each object, and some answer with a warning."""
    return [o for o in gc.get_objects() if issubclass(type(o), kind)]


def find_wrapper(module):
    """The DistributedDataParallel object around a module, made before or after; None if there is none."""
    for wrapper in list(WRAPPED)[::-1] or _objects(torch.nn.parallel.DistributedDataParallel):
        if bare(wrapper) is module or any(m is module for m in wrapper.modules()):
            return wrapper
    return None


def parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def owners(parameters):
    """The outermost modules that hold any of the parameters; found among all objects of the process."""
    wanted = set(map(id, parameters))
    holders = [o for o in _objects(torch.nn.Module) if any(id(p) in wanted for p in o.parameters())]
    inner = {id(child) for holder in holders for child in holder.modules() if child is not holder}
    return [holder for holder in holders if id(holder) not in inner]


def fsdp_groups(module):
    """FSDP2's groups of parameters in a module, outermost first."""
    groups = []
    for each in module.modules():
        state = getattr(each, "_get_fsdp_state", None)
        if state is None or type(each).__name__ == "FullyShardedDataParallel":
            continue
        state = state()
        found = getattr(state, "_fsdp_param_groups", None)
        if found is None:
            found = [state._fsdp_param_group] if getattr(state, "_fsdp_param_group", None) else []
        groups += found
    return groups


def has_flat_parameters(module):
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    return kind is not None and any(isinstance(m, kind) for m in module.modules())


def meshes(parameters):
    found = []
    for p in parameters:
        if is_sharded(p) and not any(p.device_mesh is m for m in found):
            found.append(p.device_mesh)
    return found


def _root(mesh):
    """The mesh of which this one is a slice."""
    for way in ("_get_root_mesh", "get_root_mesh"):
        if hasattr(mesh, way):
            return getattr(mesh, way)()
    resources = getattr(sys.modules.get("torch.distributed.device_mesh"), "_mesh_resources", None)
    return resources.get_root_mesh(mesh) if resources is not None else mesh


def mesh_facts(modules, parameters):
    """What the ranks share by their meshes: groups by name, and lists of ranks whose gradients are reduced together. A mesh without names over which
    parameters lie in parts that are not FSDP2's is tensor parallel."""
    groups, model_parallel = {}, []
    data_parallel = {id(p.sharded_param) for m in modules for group in fsdp_groups(m) for p in group.fsdp_params}
    in_parts = meshes(p for p in parameters if id(p) not in data_parallel)
    for mesh in meshes(parameters):
        root = _root(mesh)
        names = root.mesh_dim_names or (("tensor",) if root.ndim == 1 and any(mesh is m for m in in_parts) else ())
        for dimension, name in enumerate(names):
            word = next((w for key, w in MESH_WORDS.items() if name == key or name.startswith(key + "_") or name.endswith("_" + key)), None)
            lines = root.mesh.movedim(dimension, -1).reshape(-1, root.mesh.shape[dimension]).tolist()
            for number, ranks in enumerate(lines):
                groups[f"{word or name} {number}"] = ranks
            if "tensor" in (word, name) and lines not in model_parallel:
                model_parallel.append(lines)
    replicas = None
    if len(model_parallel) == 1:
        columns = list(zip(*model_parallel[0]))
        replicas = [list(column) for column in columns]
    return groups, replicas


def is_data_parallel(modules, parameters, world_size):
    """FSDP2 over all ranks, and nothing else: gradients of all ranks are reduced together."""
    sharded = [p for p in parameters if is_sharded(p)]
    if not sharded or not any(fsdp_groups(m) for m in modules):
        return False
    words = [name for mesh in meshes(sharded) for name in _root(mesh).mesh_dim_names or ()]
    parallel = any(name == key or name.startswith(key + "_") or name.endswith("_" + key) for name in words for key in MESH_WORDS)
    return not parallel and all(mesh.size() == world_size for mesh in meshes(sharded))


def precision_of(modules, wrappers, parameters):
    """The dtype to which wrappers cast parameters, or else their own; None if there are several, or traces have no word for it."""
    cast = {id(p.sharded_param): group.mp_policy.param_dtype for m in modules for group in fsdp_groups(m) for p in group.fsdp_params}
    # DistributedDataParallel and FSDP1 keep their policies under one name.
    policies = [getattr(each, "mixed_precision", None) for each in [*wrappers, *(inner for m in modules for inner in m.modules())]]
    asked = {dtype for policy in policies if isinstance(dtype := getattr(policy, "param_dtype", None), torch.dtype)}
    dtypes = asked or {cast.get(id(p)) or p.dtype for p in parameters if p.is_floating_point()} or {torch.get_default_dtype()}
    word = str(dtypes.pop()).removeprefix("torch.")
    return word if not dtypes and word in PRECISIONS else None


def inner_optimizer(optimizer):
    """Of ZeroRedundancyOptimizer the one that updates this rank's own parameters, and holds their state alone; else itself."""
    return getattr(optimizer, "optim", optimizer) if type(optimizer).__name__ == "ZeroRedundancyOptimizer" else optimizer


def settings_of(optimizer):
    """What the header declares of an optimizer. Only those that lockstep can recompute have the names `sgd`, `adam` and `adamw`."""
    kind = type(inner_optimizer(optimizer))
    if not optimizer.param_groups:
        return None
    group = optimizer.param_groups[0]
    if kind is torch.optim.SGD and not group.get("nesterov") and not group.get("dampening") and not group.get("maximize"):
        return {"name": "sgd", "momentum": float(group["momentum"]), "weight_decay": float(group["weight_decay"])}
    if kind in (torch.optim.Adam, torch.optim.AdamW) and not group.get("amsgrad") and not group.get("maximize"):
        decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay")
        return {"name": "adamw" if decoupled else "adam", "betas": [float(b) for b in group["betas"]], "eps": float(group["eps"]),
                "weight_decay": float(group["weight_decay"])}  # fmt: skip
    name = kind.__name__.lower()
    found = {"name": f"{name} of its own kind" if name in ("sgd", "adam", "adamw") else name}
    for key in ("momentum", "weight_decay", "eps"):
        if isinstance(group.get(key), (int, float)):
            found[key] = float(group[key])
    betas = group.get("betas")
    if isinstance(betas, (tuple, list)) and len(betas) == 2 and all(isinstance(b, (int, float)) for b in betas):
        found["betas"] = [float(b) for b in betas]
    return found


def group_settings(optimizer, names):
    """Parameters whose group has another rate or decay than the first group: as the header declares them."""
    groups = optimizer.param_groups
    if len(groups) < 2 or settings_of(optimizer) is None:
        return []
    first, found = groups[0], []
    for group in groups[1:]:
        entry = {}
        if group["lr"] != first["lr"] and float(first["lr"]):
            entry["rate_factor"] = float(f"{float(group['lr']) / float(first['lr']):.12g}")  # a schedule's rounding is no other factor
        if group.get("weight_decay") != first.get("weight_decay"):
            entry["weight_decay"] = float(group["weight_decay"])
        if entry:
            found += [{"prefix": names[id(p)], "role": "other", **entry} for p in group["params"] if id(p) in names]
    return [entry for number, entry in enumerate(found) if entry not in found[:number]]
