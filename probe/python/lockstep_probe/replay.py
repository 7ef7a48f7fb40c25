"""Steps of the reference once more: its weights, its batch, this run's forward and backward pass; in the trainer's precision and in float64.

Traces of them lie in OUT/replay/<XXH3 of the reference's rank-0.trace>/single and /double, where `lockstep compare` looks for them.
"""

import contextlib
import copy
import inspect
import json
import os

import torch
import torch.distributed as dist

from lockstep_probe import hashing, model, rows_apart, trace_file
from lockstep_probe.replayed import ReplayedProbe
from lockstep_probe.teacher import Teacher, to_wide

MOST_STEPS = 8
REPEATS = 4  # of a reference that cannot be replayed in float64
TOLERANCE = 1e-3


class Snapshot:
    """What a reference's step began with: whole tensors by name, and the sample ids of all ranks in the order of one process."""

    def __init__(self, step, tensors, ids):
        self.step, self.tensors, self.ids = step, tensors, ids


def digest(path, hashes):
    with open(path, "rb") as file:
        return f"{hashes.xxh3(file.read()):016x}"


def _whole(parts):
    """A tensor of its ranks' parts; of one that each rank holds whole the first."""
    first = parts[0]
    if first.placement is None or not first.placement.shard:
        return first.values
    whole = torch.zeros(first.placement.whole, dtype=first.values.dtype)
    for part in parts:
        where = tuple(slice(o, o + n) for o, n in zip(part.placement.offset, part.values.shape))
        whole[where] = part.values
    return whole


def snapshots(folder):
    """Those of a run, from all its ranks' traces. Raises OSError, ValueError."""
    world_size = trace_file.header_of(os.path.join(folder, "rank-0.trace"))["world_size"]
    phase, samples = trace_file.PHASES["snapshot"], trace_file.PHASES["samples"]
    by_step = {}
    for rank in range(world_size):
        for step, records in trace_file.read_steps(os.path.join(folder, f"rank-{rank}.trace")):
            kept = [r for r in records if r.phase == phase and r.values is not None]
            if not kept:
                continue
            tensors, ids = by_step.setdefault(step, ({}, {}))
            ids[rank] = next((r.ids for r in records if r.phase == samples), ())
            for record in kept:
                tensors.setdefault(record.name, []).append(record)
    found = []
    for step in sorted(by_step):
        tensors, ids = by_step[step]
        rows = [ids.get(rank, ()) for rank in range(world_size)]
        order = [each[k] for k in range(max(map(len, rows), default=0)) for each in rows if k < len(each)]
        found.append(Snapshot(step, {name: _whole(parts) for name, parts in tensors.items()}, order))
    return found


class Subject:
    """A model in which steps are replayed: its parameters and buffers can be set."""

    def __init__(self, called, inner, teacher, wide):
        self.called, self.inner = called, inner  # what step_on takes; the modules with the names that traces have
        self._teacher, self._wide = teacher, wide

    def load(self, snapshot):
        """Raises ValueError that names what does not fit."""
        self._teacher.load(snapshot, self._wide)
        with torch.no_grad():
            for prefix, name, tensor in model.named(self.inner, "named_parameters"):
                self._set(tensor, snapshot.tensors.get(prefix + name), prefix + name)
            for prefix, name, tensor in model.named(self.inner, "named_buffers"):
                kept = snapshot.tensors.get("buffer/" + prefix + name)
                if kept is not None:
                    self._set(tensor, kept, "buffer/" + prefix + name)

    @staticmethod
    def _set(tensor, kept, name):
        if kept is None:
            raise ValueError(f"the reference's snapshot has no {name}")
        placement = model.placement_of(tensor)
        if list(kept.shape) != list(tensor.shape):
            if placement is not None and list(kept.shape) == list(model.held(tensor).shape):
                placement = None
            else:
                raise ValueError(f"{name} has shape {list(tensor.shape)} here and {list(kept.shape)} in the reference's snapshot")
        part = model.held(tensor)
        if placement is not None and placement.shard:
            kept = kept[tuple(slice(o, o + n) for o, n in zip(placement.offset, part.shape))]
        part.copy_(kept.to(part.dtype))


def _widen_inputs(modules):
    for each in modules:
        each.register_forward_pre_hook(lambda _m, args, kwargs: (tuple(map(to_wide, args)), to_wide(kwargs)), with_kwargs=True)


def _copied(module):
    """A deep copy; process groups within it stay the same objects."""
    groups = [v for each in module.modules() for v in vars(each).values() if dist.is_available() and isinstance(v, dist.ProcessGroup)]
    return copy.deepcopy(module, {id(g): g for g in groups})


def _rewrapped(wrapper, inner):
    """A copy's DistributedDataParallel with the settings of the trainer's own."""
    kind = torch.nn.parallel.DistributedDataParallel
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in inspect.signature(kind.__init__).parameters else "broadcast_buffers"
    return kind(
        inner, process_group=wrapper.process_group, **{buffers: getattr(wrapper, buffers, True)},
        bucket_cap_mb=wrapper.bucket_bytes_cap / 2**20, find_unused_parameters=wrapper.find_unused_parameters,
        gradient_as_bucket_view=wrapper.gradient_as_bucket_view, static_graph=wrapper.static_graph)  # fmt: skip


@contextlib.contextmanager
def _default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _set_modes(probe, inner):
    """Each module trains or evaluates as it did at the first step: a frozen BatchNorm stays frozen."""
    for each, modes in zip(inner, probe._modes):
        for name, module in each.named_modules():
            module.training = modes.get(name, True)


def _subject(probe, build, wide):
    """A model to replay in. Raises whatever building it raises."""
    if build is not None:
        with _default_dtype(torch.float64 if wide else torch.get_default_dtype()):
            called = build()
        inner = [model.bare(m) for m in (called if isinstance(called, (list, tuple)) else [called])]
        _set_modes(probe, inner)
        if wide:
            _widen_inputs(inner)
        return Subject(called, inner, probe.teacher, wide)
    if any(model.fsdp_groups(m) or model.has_flat_parameters(m) for m in probe.models):
        raise ValueError("a sharded model cannot be copied; give replay a build= that makes and wraps a fresh one")
    inner = [_copied(m) for m in probe.models]
    for each in inner:
        if wide:
            each.double()
    if wide:
        _widen_inputs(inner)
    _set_modes(probe, inner)
    wrapped = [_rewrapped(probe._wrappers[0], each) if probe._wrappers and any(model.bare(w) is m for w in probe._wrappers) else each
               for each, m in zip(inner, probe.models)]  # fmt: skip
    return Subject(wrapped[0] if len(wrapped) == 1 else wrapped, inner, probe.teacher, wide)


@contextlib.contextmanager
def _without_dropout(modules):
    found = [m for each in modules for m in each.modules() if isinstance(m, torch.nn.modules.dropout._DropoutNd)]
    was = [m.p for m in found]
    heads = [m for each in modules for m in each.modules() if isinstance(getattr(m, "dropout", None), float)]
    were = [m.dropout for m in heads]
    for m in found:
        m.p = 0.0
    for m in heads:
        m.dropout = 0.0
    try:
        yield
    finally:
        for m, p in zip(found, was):
            m.p = p
        for m, p in zip(heads, were):
            m.dropout = p


def _mine(probe, snapshot):
    """This rank's samples of a reference's step: those it took itself there, if the step's are the same; else every so manyth.

    Ranks that hold one model together take the same.
    """
    if snapshot.step in probe._same_rows:
        return probe._ids_at[snapshot.step]
    for ranks in probe.replicas or ():
        if probe.rank in ranks:
            return snapshot.ids[ranks.index(probe.rank) :: len(ranks)]
    return snapshot.ids[probe.rank :: probe.world_size]


def _gather(probe, value):
    """What each rank has, as JSON has it; PyTorch's own way takes NumPy."""
    if probe.world_size == 1 or not (dist.is_available() and dist.is_initialized()):
        return [value]
    own = torch.tensor(list(json.dumps(value).encode()), dtype=torch.int64)
    longest = torch.tensor([len(own)])
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    padded = torch.full((int(longest),), 32)
    padded[: len(own)] = own
    all_ranks = [torch.empty_like(padded) for _ in range(probe.world_size)]
    dist.all_gather(all_ranks, padded)
    return [json.loads(bytes(each.tolist())) for each in all_ranks]


def _same_rows(probe, found):
    """The steps at which this run's ranks together hold the reference's rows."""
    everyone = _gather(probe, [list(probe._ids_at.get(s.step, [])) for s in found])
    return {s.step for k, s in enumerate(found) if {i for each in everyone for i in each[k]} == set(s.ids)}


def _together(probe, problem):
    """The first rank's problem, on every rank: what one cannot do none does."""
    everyone = _gather(probe, problem)
    problem = next((each for each in everyone if each), None)
    rank = next((rank for rank, each in enumerate(everyone) if each), 0)
    return f"rank {rank}: {problem}" if problem and probe.world_size > 1 else problem


class Run:
    """Replays of one precision, in a trace of their own."""

    def __init__(self, probe, folder, subject, dropout):
        self.subject, self.dropout = subject, dropout
        self.probe = ReplayedProbe(subject.inner, folder, probe)
        self.drew = False  # has a forward pass taken random numbers?

    def step(self, step_on, snapshot, ids):
        """The gradients' hashes by parameter, and the loss if step_on returns one."""
        self.subject.load(snapshot)
        probe = self.probe
        for each in self.subject.inner:
            each.zero_grad(set_to_none=True)
        with contextlib.nullcontext() if self.dropout else _without_dropout(self.subject.inner):
            probe._number = snapshot.step - 1
            probe.rows(ids)
            loss = step_on(self.subject.called, list(ids))
        self.drew |= probe.current is not None and probe.current.draws > 0
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            probe.step(loss)
        probe.end_step()
        return loss


def _tried(probe, step_on, dropout, subject, folder):
    """Replays the run's own first step. What differs from training, in words; empty: nothing."""
    number, tensors = probe._kept_state
    run = Run(probe, folder, subject, dropout)
    snapshot = Snapshot(number, tensors, probe._ids_at.get(number, []))
    run.step(step_on, snapshot, snapshot.ids)
    run.probe.close()
    own = next((r for s, r in trace_file.read_steps(os.path.join(probe.settings.out, f"rank-{probe.rank}.trace")) if s == number), [])
    again = next((r for s, r in trace_file.read_steps(os.path.join(folder, f"rank-{probe.rank}.trace")) if s == number), [])
    # What a trainer that reduces by hand does to gradients before its optimizer takes them is not the function's.
    return _difference(own, again, number, ("local",) if probe.by_hand else ("local", "reduced"))


def _difference(own, again, number, kinds):
    for kind in kinds:
        problem = _difference_of(f"{kind} gradient", *(_gradients(records, f"{kind} gradients") for records in (own, again)), number)
        if problem:
            return problem
    return ""


def _gradients(records, phase):
    return {r.name: r.values for r in records if r.phase == trace_file.PHASES[phase] and r.values is not None}


def _difference_of(kind, trained, replayed, number):
    for name, gradient in trained.items():
        if name not in replayed:
            return f"step {number} of training has a {kind} of {name}, and its replay has none"
        a, b = gradient.double(), replayed[name].double()
        if a.shape != b.shape:
            return f"the {kind} of {name} has shape {list(a.shape)} in training and {list(b.shape)} in its replay"
        size, off = float(a.norm()), float((a - b).norm())
        if not off <= TOLERANCE * max(size, float(b.norm())):
            ratio = float((a * b).sum()) / size**2 if size else float("inf")
            alike = f", {ratio:.4g} times the former" if size and off > 0 and float((b - ratio * a).norm()) <= TOLERANCE * float(b.norm()) else ""
            return (f"the {kind} of {name} at step {number} has norm {size:.6g} in training and {float(b.norm()):.6g} in its replay{alike}; "
                    "replayed: the same samples and weights")  # fmt: skip
    return ""


def _reseed():
    torch.manual_seed(20)


def replay(probe, step_on, build, dropout):
    """At the end of training: every rank together. The trainer's model, optimizer and generators are left as they were."""
    out, hashes = probe.settings.out, hashing.load()
    state = torch.get_rng_state()
    try:
        with Teacher(probe.state) as probe.teacher:
            _replay(probe, step_on, build, dropout, out, hashes)
    finally:
        torch.set_rng_state(state)


def _replay(probe, step_on, build, dropout, out, hashes):
    if dist.is_available() and dist.is_initialized() and probe.world_size > 1:
        dist.barrier()
    against = probe.settings.against or out
    found, problem = [], None
    try:
        found = [s for s in snapshots(against) if s.ids][:MOST_STEPS]
        if not found:
            problem = f"{against} has no step with values and sample ids to replay; rows() records the ids"
        name = digest(os.path.join(against, "rank-0.trace"), hashes)
    except (OSError, ValueError) as error:
        problem = f"{against} cannot be read as the reference: {error}"
    problem = _together(probe, problem)
    if problem:
        probe._note(f"replay: {problem}; nothing is replayed")
        return
    folder = os.path.join(out, "replay", name)
    probe._same_rows = _same_rows(probe, found)
    problem = _trial(probe, step_on, build, dropout, os.path.join(folder, "trial"))
    if problem:
        probe._note(f"replay: the function does not reproduce the run's own step: {problem}. Nothing is replayed: it would be judged in place of the training")
        return
    probe.replayed = _precision(probe, step_on, build, dropout, os.path.join(folder, "single"), found, wide=False)
    probe.replayed_wide = _precision(probe, step_on, build, dropout, os.path.join(folder, "double"), found, wide=True)
    if probe.replayed:
        _apart(probe, step_on, build, os.path.join(folder, "rows"), found, wide=probe.replayed_wide)
    if probe.replayed and not probe.replayed_wide and against == out:
        for number in range(1, REPEATS + 1):
            _precision(probe, step_on, build, dropout, os.path.join(folder, f"repeat-{number}"), found, wide=False, repeat=number)


def _trial(probe, step_on, build, dropout, folder):
    problem = None
    has_dropout = any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for each in probe.models for m in each.modules())
    if probe._kept_state is None or (has_dropout or not dropout):
        return None  # other masks, other gradients: a trial would prove nothing
    try:
        problem = _tried(probe, step_on, dropout, _subject(probe, build, False), folder) or None
    except Exception as error:  # noqa: BLE001  the user's own function
        problem = f"{type(error).__name__}: {error}"
    return _together(probe, problem)


def _is_narrow(subject):
    """Has every element of all gradients the digits of float32?"""
    found = [model.held(p.grad) for _, _, p in model.named(subject.inner, "named_parameters") if p.grad is not None]
    return any(g.count_nonzero() >= 8 for g in found) and all(bool((g == g.float().double()).all()) for g in found)


def _apart(probe, step_on, build, folder, found, wide):
    """Without dropout: what rows lose and not what they draw."""
    try:
        subject = _subject(probe, build, wide)
        with _without_dropout(subject.inner), _default_dtype(torch.float64 if wide else torch.get_default_dtype()):
            rows_apart.write(probe, folder, step_on, subject, found, lambda snapshot: list(_mine(probe, snapshot)))
    except Exception as error:  # noqa: BLE001  the user's own function
        probe._note(f"replay: rows are not taken apart: {type(error).__name__}: {error}")


def _precision(probe, step_on, build, dropout, folder, found, wide, repeat=0):
    """Replays all steps; False, with a message, if that is not possible."""
    problem, run = None, None
    try:
        run = Run(probe, folder, _subject(probe, build, wide), dropout)
        for snapshot in found:
            _reseed()
            ids = list(_mine(probe, snapshot))
            if repeat:
                order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(repeat)).tolist()
                ids = [ids[i] for i in order]
            with _default_dtype(torch.float64 if wide else torch.get_default_dtype()):  # of counts that the function divides by
                run.step(step_on, snapshot, ids)
        if wide and _is_narrow(run.subject):
            problem = "gradients have no more digits than float32: a policy of mixed precision, or the function, computes in a narrower type"
        run.probe.close()
        if run.drew and probe.settings.against and trace_file.header_of(os.path.join(probe.settings.against, "rank-0.trace"))["world_size"] != probe.world_size:
            problem = ("forward passes take random numbers, which rows of another layout get differently; replay(step_on, dropout=False) leaves dropout out, "
                       "and other draws must be left out in step_on")  # fmt: skip
    except Exception as error:  # noqa: BLE001  the user's own function
        problem = f"{'float64' if wide else 'the trainers precision'}: {type(error).__name__}: {error}"
    problem = _together(probe, problem)
    if problem:
        probe._note(f"replay: {problem}")
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, f"rank-{probe.rank}.trace"))
    return problem is None
