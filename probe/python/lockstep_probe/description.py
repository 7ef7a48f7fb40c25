"""What a rank says of its run: the trace's header, rank-R.probe.json, and what the probe does not see."""

import os
import sys

import torch

import lockstep_probe
from lockstep_probe import float64, model, ownership


def unseen(probe):
    """In words, before the first step."""
    if any(model.has_flat_parameters(m) for m in probe.models):
        yield "FullyShardedDataParallel (FSDP1) hides parameters in flat ones: they and their gradients are not recorded; FSDP2 (fully_shard) shows them"
    if any(model.is_compiled(m) for m in probe.models):
        yield ("torch.compile: gradients, parameters and DDP's and the program's own collectives are recorded as without it; collectives "
               "inside a compiled graph (functional ones) and CUDA graphs' replays are not")  # fmt: skip
    if getattr(torch._dynamo.config, "compiled_autograd", False) if "torch._dynamo" in sys.modules else False:
        yield "compiled autograd may pass hooks of gradients by: local gradients may be missing"
    if any(type(optimizer).__name__ == "LBFGS" for optimizer in probe.optimizers):
        yield "LBFGS computes gradients within its step: local gradients are those of its last evaluation"


def declared(probe, step):
    """What docs/trace.md lists, as far as the run's first step shows it; `attach(declare=…)` has the last word."""
    found = {"strip_prefixes": ["module.", "_orig_mod."]}
    if len(probe.optimizers) == 1:
        found["optimizer"] = model.settings_of(probe.optimizers[0])
        found["parameters"] = model.group_settings(probe.optimizers[0], {id(w.parameter): probe.parameters.shared_name(w) for w in probe.parameters})
    found["clip_norm"] = probe.gradients.clip_norm
    found["accumulation"] = step.backwards if step.backwards > 1 else None
    found["precision"] = _precision(probe, step)
    found["groups"], replicas = model.mesh_facts(probe.models, probe.parameters.tensors())
    if replicas is None and model.is_data_parallel(probe.models, probe.parameters.tensors(), probe.world_size):
        replicas = [list(range(probe.world_size))]
    found["replicas"] = replicas if probe.world_size > 1 else None
    said = {key: value for key, value in found.items() if value} | probe.declared
    if found.get("parameters") and isinstance(probe.declared.get("parameters"), list):
        said["parameters"] = _with_roles(found["parameters"], probe.declared["parameters"])
    return said


def _with_roles(groups, entries):
    """What the trainer declares of its parameters, and the optimizer's groups with the roles that it gives."""
    merged = list(entries)
    for group in groups:
        fitting = [each for each in entries if isinstance(each, dict) and group["prefix"].startswith(str(each.get("prefix", "")))]
        nearest = max(fitting, key=lambda each: len(str(each.get("prefix", ""))), default={})
        merged = [each for each in merged if each is not nearest or each.get("prefix") != group["prefix"]]
        merged.append({**group, **nearest, "prefix": group["prefix"]})
    return merged


def _precision(probe, step):
    # Of a compiled forward pass no hook shows whether there is autocast around it, and within it.
    if probe.autocast or (step.backwards and not probe.saw_forward):
        return probe.autocast
    copies = {id(copy) for _, copy in probe.parameters.copies()}  # which nothing computes with
    own = [p for p in probe.parameters.tensors() if id(p) not in copies]
    return model.precision_of(probe.models, probe._wrappers, own)


def header(probe, said):
    return {
        "config_hash": os.environ.get("LOCKSTEP_RUN") or os.path.basename(probe.settings.out) or "run", "rank": probe.rank,
        "world_size": probe.world_size, "trainer": os.path.basename(sys.argv[0] or "python"), "level": probe.settings.level,
        "started_by": f"lockstep_probe {lockstep_probe.__version__}", "declared": said,
    }  # fmt: skip


def _wrapper(probe):
    if probe._wrappers:
        return "ddp"
    if any(model.fsdp_groups(m) for m in probe.models):
        return "fsdp2"
    return "dtensor" if any(map(model.is_sharded, probe.parameters.tensors())) else "none"


def write(probe, done):
    """rank-R.probe.json: what the run has recorded, for `lockstep`. Raises OSError."""
    modules = [m for each in probe.models for m in each.modules()]
    facts = {
        "format": 1, "tier": probe.tier, "probe": lockstep_probe.__version__, "torch": torch.__version__, "wrapper": _wrapper(probe), **probe.saw,
        "metrics": sorted(probe.metrics), "level": probe.settings.level, "steps": probe.steps_done, "done": done, "world_size": probe.world_size,
        "seconds": round(probe.seconds_whole, 4), "probe_seconds": round(probe.seconds, 4),
        "dropout": any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for m in modules),
        "notes": [text for _, text in probe.notes], "owner": ownership.process(), "program": ownership.program(),
        "attempt": ownership.attempt(), "ended": probe.ended, "led": probe.led.facts(),
        "generated": sorted(probe.generated), "steps_kept": list(probe.values.kept) if probe.settings.steps else None,
        "gathers": sorted(getattr(sys.modules.get("lockstep_probe.otherwise"), "kinds", ())),
        "casts": sorted(getattr(float64.on, "casts", ())),
        "narrow": None if float64.on is None else {"operations": sorted(float64.on.narrow), "gradients": {step: names for step, names in probe.few_digits.items() if names}},
    }  # fmt: skip
    ownership.write_facts(probe.settings.out, probe.rank, facts)
