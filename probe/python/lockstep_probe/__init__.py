"""Records what a PyTorch trainer computes, so that `lockstep compare` can judge it. docs/probe.md shows the three ways.

    import lockstep_probe
    probe = lockstep_probe.attach(model, optimizer)
    for ids, x, y in batches:
        probe.rows(ids, x, y)
        ...
        optimizer.step()
        probe.step(loss)

Nothing is recorded, and nothing costs time, unless `lockstep trace` starts the program, LOCKSTEP_TRACE names a folder or `out` does.
"""

import ctypes
import hashlib
import importlib
import os

from lockstep_probe.ownership import say, was_opened_here

__version__ = "0.1.0"
__all__ = ["agree", "assert_same", "attach"]


def __getattr__(name):
    """One line for a framework, which is imported when that line is used."""
    if name in ("accelerate", "lightning", "transformers"):
        return importlib.import_module(f"lockstep_probe.{name}")
    raise AttributeError(f"module 'lockstep_probe' has no attribute {name!r}")


def assert_same(train, ranks=(1, 2), **options):
    """Raises AssertionError unless `train(rank)` trains the same on each number of ranks: docs/start.md, `ranks.assert_same`."""
    from lockstep_probe import ranks as running

    return running.assert_same(train, ranks, **options)


def agree(name, value, group=None):
    """Raises RuntimeError on all ranks, naming the odd ones, unless `value` is the same on all of the group; a collective of theirs.

    value  a number, a text, a tensor or anything else with a repr; tensors are compared by their bits, dtype and shape
    """
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return
    said = value
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        content = hashlib.sha256(ctypes.string_at(flat.data_ptr(), flat.nbytes)).hexdigest()[:12]
        said = f"{flat.dtype} {tuple(value.shape)} {flat.tolist() if len(flat) < 5 else content}"
    of_ranks = [None] * dist.get_world_size(group)
    dist.all_gather_object(of_ranks, repr(said), group)
    by_value = {}
    for rank, each in enumerate(of_ranks):
        by_value.setdefault(each, []).append(rank)
    if len(by_value) > 1:
        parts = (f"{each} on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" for each, ranks in sorted(by_value.items(), key=lambda at: len(at[1])))
        raise RuntimeError(f"{name} is not the same on all ranks: {'; '.join(parts)}")


def attach(model, optimizer=None, *, out=None, level=None, snapshots=None, every=None, declare=None, average=None,
           own=(), first_step=0, rank=None, world_size=None, against=None):  # fmt: skip  (against: no effect)
    """The probe of this rank. `model`: a module, wrapped or not, or a list of them; `optimizer`: one, or a list.

    out         folder of the traces; else LOCKSTEP_TRACE. Without either the probe does nothing
    level       off, hash, stats, full; else LOCKSTEP_LEVEL, else hash
    snapshots   steps that keep all values, such as [0, 10, 100]; else LOCKSTEP_SNAPSHOTS, else by the model's size
    every       records every so manyth step; else LOCKSTEP_EVERY, else 1
    declare     what docs/trace.md lists under "declared", where the probe cannot see it
    average     a module that holds the parameters' averages, such as swa_utils.AveragedModel
    own         beginnings of names of parameters that are a rank's own, such as a rank's experts
    first_step  number of the first update, of a resumed run

    Never raises: what is wrong is said on stderr, and the trainer goes on without a probe.
    """
    from lockstep_probe import model as models
    from lockstep_probe import patches, settings
    from lockstep_probe.probe import Probe

    modules = list(model) if isinstance(model, (list, tuple)) else [model]
    optimizers = [] if optimizer is None else list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    # Accelerate's and Lightning's optimizers call themselves torch's, and hold the one that steps and calls the hooks.
    optimizers = [inner if hasattr(inner := getattr(o, "optimizer", None), "register_step_pre_hook") else o for o in optimizers]
    bare = [models.bare(m) for m in modules]
    for probe in patches.probes():
        if probe.tier != "zero" and not probe.is_off and any(a is b for a in probe.models for b in bare):
            say("attach: this model has a probe already; that one goes on, and this call changes nothing")
            return probe
    try:
        asked = settings.read(out, level, snapshots, every)
    except ValueError as error:
        say(f"attach: {error}; nothing is recorded, and training goes on")
        asked = settings.Settings(level="off")
    for probe in patches.probes():
        if probe.is_off:
            continue
        if not probe.prepared:
            if probe.tier == "zero" or os.path.abspath(probe.settings.out) == os.path.abspath(asked.out):
                probe.detach()
        elif probe.tier != "zero":
            if os.path.abspath(probe.settings.out) == os.path.abspath(asked.out):
                say(f"attach: the recording of the model before, {probe.steps_done} steps in {probe.settings.out}, ends here")
                probe.finish()
        elif any(a is b for a in probe.models for b in bare):
            say("attach: training has begun without it; the probe that needs no lines goes on, and this call adds what it can")
            return probe
        else:
            say("attach: what another model has trained so far, recorded without a line, makes room for this one")
            probe.withdraw()
    asked.out = _room(asked.out)
    try:
        return Probe(bare, optimizers, asked, declare=declare, average=average, own=own, first_step=first_step, rank=rank,
                     world_size=world_size)  # fmt: skip
    except Exception as error:  # noqa: BLE001  a probe must not stop a trainer
        say(f"attach: {type(error).__name__}: {error}; nothing is recorded, and training goes on")
        return Probe(bare, [], settings.Settings(level="off"))


def _room(out):
    """The folder, or one in it for another training of this process: 2, 3, …"""
    chosen, number = out, 1
    while chosen and was_opened_here(chosen):
        number += 1
        chosen = os.path.join(out, str(number))
    if number > 1:
        say(f"attach: {out} holds what this process has recorded before; this training is recorded in {chosen}")
    return chosen
