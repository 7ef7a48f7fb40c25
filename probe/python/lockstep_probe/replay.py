"""Steps of the reference once more: its weights, its batch, this run's forward and backward pass; in the trainer's precision and in float64.

Traces of them lie in OUT/replay/<XXH3 of the reference's rank-0.trace>/single and /double, where `lockstep compare` looks for them.
"""

import contextlib
import copy
import functools
import inspect
import json
import os

import torch
import torch.distributed as dist

from lockstep_probe import hashing, model, rows_apart, trace_file
from lockstep_probe.led import Snapshot, snapshots
from lockstep_probe.replayed import WAYS, ReplayedProbe, Wide
from lockstep_probe.teacher import Teacher, to_wide

MOST_STEPS = 8
REPEATS = 4  # of a reference that cannot be replayed in float64
TOLERANCE = 1e-3
NARROW = 1e-11  # of a gradient in float64 that moves by more is not exact to float64, if one rounding of float32 moves it


def digest(path, hashes):
    with open(path, "rb") as file:
        return f"{hashes.xxh3(file.read()):016x}"


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


def _set_modes(probe, inner):
    """Each module trains or evaluates as it did at the first step: a frozen BatchNorm stays frozen."""
    for each, modes in zip(inner, probe._modes):
        for name, module in each.named_modules():
            module.training = modes.get(name, True)


def _subject(probe, build, wide):
    """A model to replay in. Raises whatever building it raises."""
    if build is not None:
        with Wide("plain" if wide else None):
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
    return next((_of_rank(probe, rank, each) for rank, each in enumerate(everyone) if each), None)


def _of_rank(probe, rank, problem):
    return f"rank {rank}: {problem}" if probe.world_size > 1 else problem


class Task:
    """See `Probe.replay`."""

    def __init__(self, step_on, build, dropout):
        self.step_on, self.build, self.dropout = step_on, build, dropout


class Run:
    """Replays of one precision, in a trace of their own; without a folder the last step's records are held in memory."""

    def __init__(self, probe, folder, subject, dropout, wide):
        self.subject, self.dropout, self.wide = subject, dropout, wide
        self.probe = ReplayedProbe(subject.inner, folder, probe)
        self.drew = False  # has a forward pass taken random numbers?

    def step(self, step_on, snapshot, ids):
        self.subject.load(snapshot)
        probe = self.probe
        for each in self.subject.inner:
            each.zero_grad(set_to_none=True)
        with contextlib.nullcontext() if self.dropout else _without_dropout(self.subject.inner):
            probe._number = snapshot.step - 1
            probe.rows(ids)
            with self.wide:
                loss = step_on(self.subject.called, list(ids))
        self.drew |= probe.current is not None and probe.current.draws > 0
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            probe.step(loss)
        probe.end_step()

    def gradients(self):
        return [(prefix + name, model.held(p.grad)) for prefix, name, p in model.named(self.subject.inner, "named_parameters") if p.grad is not None]


def _own_steps(probe):
    """This run's own steps with all values, on all ranks: the state that this rank began with, its samples, and what it recorded."""
    complete = [] if probe.values.left_out else list(probe._ids_at)
    common = set.intersection(*map(set, _gather(probe, complete)))
    for step, records in trace_file.read_steps(os.path.join(probe.settings.out, f"rank-{probe.rank}.trace")):
        if step in common:
            kept = {r.name: r.values for r in records if r.phase == trace_file.PHASES["snapshot"] and r.values is not None}
            yield Snapshot(step, kept, list(probe._ids_at[step])), records


def _try(probe, task):
    """Repeats each of the run's own steps that has values. What there is to say of it stays in `probe.tried`, for `lockstep compare`.

    The problem, in words, if not even the first one gives the training's gradients: then the function is not the training's.
    """
    has_dropout = any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for each in probe.models for m in each.modules())
    if has_dropout or not task.dropout:
        return None  # other masks, other gradients: it would prove nothing
    # What a trainer that reduces by hand does to gradients before its optimizer takes them is not the function's.
    kinds, run, problem = ("local",) if probe.by_hand or probe.gradients.ends_held else ("local", "reduced"), None, None
    for snapshot, own in _own_steps(probe):
        try:
            run = run or Run(probe, "", _subject(probe, task.build, False), task.dropout, Wide(None))
            run.step(task.step_on, snapshot, snapshot.ids)
            found = _difference(own, [trace_file.kept(r) for r in run.probe.writer.records if r[0].bytes[0] == trace_file.TENSOR], snapshot.step, kinds)
        except Exception as error:  # noqa: BLE001  the user's own function
            found = {"says": f"{type(error).__name__}: {error}"}
        differing = [{"step": snapshot.step, "rank": rank, **each} for rank, each in enumerate(_gather(probe, found)) if each]
        # Where some ranks' own gradients differ, what all ranks reduce follows from them.
        differing = [each for each in differing if each.get("phase") == "local gradients"] or differing
        if differing and not probe.tried["steps"]:
            problem = _of_rank(probe, differing[0]["rank"], differing[0]["says"])
            break
        probe.tried["steps"].append(snapshot.step)
        probe.tried["differ"] += differing
    if run is not None:
        run.probe.close()
    elif not problem:
        probe._note("replay: no step of this run keeps all values, so that the function cannot be tried on it; --snapshots 0 keeps those of step 0")
    return problem


def _difference(own, again, number, kinds):
    if any(r.phase == trace_file.PHASES["control"] and r.name == "skipped" for r in own):
        return None  # a GradScaler found the gradients infinite; what its scale makes of them is not the function's
    for kind in kinds:
        found = _difference_of(kind, *(_gradients(records, f"{kind} gradients") for records in (own, again)), number)
        if found:
            return found
    return None


def _gradients(records, phase):
    return {r.name: r for r in records if r.phase == trace_file.PHASES[phase] and r.values is not None}


def _difference_of(kind, trained, replayed, number):
    """The first tensor that differs, and how; None if all are as in training."""
    for name, record in trained.items():
        again, says = replayed.get(name), ""
        if again is None:
            says = f"step {number} of training has a {kind} gradient of {name}, and its replay has none"
        elif record.hash != again.hash:
            says = _how(f"the {kind} gradient of {name}", record.values.double(), again.values.double(), number)
        if says:
            return {"phase": f"{kind} gradients", "tensor": name, "says": says}
    return None


def _how(what, a, b, number):
    if a.shape != b.shape:
        return f"{what} has shape {list(a.shape)} in training and {list(b.shape)} in its replay"
    size, off = float(a.norm()), float((a - b).norm())
    if off <= TOLERANCE * max(size, float(b.norm())):
        return ""
    ratio = float((a * b).sum()) / size**2 if size else float("inf")
    alike = f", {ratio:.4g} times the former" if size and off > 0 and float((b - ratio * a).norm()) <= TOLERANCE * float(b.norm()) else ""
    return (f"{what} at step {number} has norm {size:.6g} in training and {float(b.norm()):.6g} in its replay{alike}; "
            "replayed: the same samples and weights")  # fmt: skip


def _reseed():
    torch.manual_seed(20)


def replay(probe, *task):
    """At the end of training: every rank together. The trainer's model, optimizer and generators are left as they were."""
    state = torch.get_rng_state()
    try:
        with Teacher(probe.state) as probe.teacher:
            _replay(probe, Task(*task))
    finally:
        torch.set_rng_state(state)


def _replay(probe, task):
    if dist.is_available() and dist.is_initialized() and probe.world_size > 1:
        dist.barrier()
    apart = None if probe.by_hand else next((w.name for w in probe.parameters if probe.gradients.is_by_hand(w)), None)
    if problem := _together(probe, apart and f"the program reduces {apart} itself, and DistributedDataParallel the others"):
        probe._note(f"replay: {problem}; nothing is replayed")
        return
    problem = _try(probe, task)
    if problem:
        probe._note(f"replay: the function does not reproduce the run's own step: {problem}. Nothing is replayed: it would be judged in place of the training")
        return
    for each in probe.tried["differ"][:1]:
        probe._note(f"replay: the function does not reproduce the run's own step {each['step']}: {_of_rank(probe, each['rank'], each['says'])}. "
                    "Replays do not stand for the training there")  # fmt: skip
    out, against = probe.settings.out, probe.settings.against or probe.settings.out
    probe.replayed, probe.replayed_wide = _replay_steps_of(probe, task, against)
    if against != out and probe.replayed:
        _replay_steps_of(probe, task, out)  # so that this run can be another's reference


def _replay_steps_of(probe, task, reference):
    """Of a run's steps with values. Have they been replayed, in float64 too?"""
    found, problem = [], None
    try:
        there = [s for s in snapshots(reference) if s.ids]
        found = [s for s in there if all(w.name in s.tensors for w in probe.parameters)][:MOST_STEPS]
        if not there:
            problem = f"{reference} has no step with values and sample ids to replay; rows() records the ids"
        elif not found:
            lacks = next(w.name for w in probe.parameters if w.name not in there[0].tensors)
            problem = (f"the snapshot of step {there[0].step} in {reference} has no {lacks}; where values were left out for their size, "
                       f"--snapshots {there[0].step} keeps all")  # fmt: skip
        name = digest(os.path.join(reference, "rank-0.trace"), hashing.load())
    except (OSError, ValueError) as error:
        problem = f"{reference} cannot be read as the reference: {error}"
    problem = _together(probe, problem)
    if problem:
        probe._note(f"replay: {problem}; nothing is replayed")
        return False, False
    folder = os.path.join(probe.settings.out, "replay", name)
    probe._same_rows = _same_rows(probe, found)
    problem, _ = _precision(probe, task, os.path.join(folder, "single"), found)
    if problem:
        probe._note(f"replay: {problem}")
        return False, False
    way = _float64(probe, task, os.path.join(folder, "double"), found)
    _apart(probe, task, os.path.join(folder, "rows"), found, way)
    for number in range(1, REPEATS + 1) if way is None and reference == probe.settings.out else ():
        _precision(probe, task, os.path.join(folder, f"repeat-{number}"), found, repeat=number)
    return True, way is not None


def _float64(probe, task, folder, found):
    """The way in which steps were replayed in float64; None, with a message, if none is possible."""
    for way in WAYS:
        problem, is_final = _precision(probe, task, folder, found, way)
        if problem is None:
            return way
        if is_final:
            break
    probe._note(f"replay: {problem}")
    return None


def _narrow_digits(run):
    """A parameter whose gradient has the digits of float32 alone; of exact numbers of a few digits, which bfloat16 has too, all must be so."""
    found = [(name, g) for name, g in run.gradients() if g.count_nonzero() >= 8]
    narrow = [(name, g) for name, g in found if bool((g == g.float().double()).all())]
    rounded = [name for name, g in narrow if not bool((g == g.bfloat16().double()).all())]
    return rounded[0] if rounded else narrow[0][0] if narrow and len(narrow) == len(found) else ""


def _follows_narrow(run, task, probe, found):
    """A step and parameter whose gradient in float64 moves if what is still computed in a narrower type is one rounding off."""
    run, moved = Run(probe, "", run.subject, task.dropout, run.wide), None
    for snapshot in found:
        both = []
        for run.wide.nudges in (False, True):
            _reseed()
            run.step(task.step_on, snapshot, list(_mine(probe, snapshot)))
            both.append({name: g.clone() for name, g in run.gradients()})
        run.wide.nudges = False
        for name, g in both[0].items():
            if not moved and float((g - both[1][name]).norm()) > NARROW * float(g.norm()):
                moved = snapshot.step, name
    run.probe.close()
    return moved


def _apart(probe, task, folder, found, way):
    """Without dropout: what rows lose and not what they draw."""
    try:
        subject = _subject(probe, task.build, way is not None)
        with _without_dropout(subject.inner), Wide(way):
            rows_apart.write(probe, folder, task.step_on, subject, found, lambda snapshot: list(_mine(probe, snapshot)), functools.partial(_together, probe))
    except Exception as error:  # noqa: BLE001  the user's own function
        probe._note(f"replay: rows are not taken apart: {type(error).__name__}: {error}")


def _precision(probe, task, folder, found, way=None, repeat=0):
    """Replays all steps. What is in the way of that, or None; and is it so in whatever way?"""
    problem, run, wide = None, None, Wide(way)
    try:
        run = Run(probe, folder, _subject(probe, task.build, way is not None), task.dropout, wide)
        for snapshot in found:
            _reseed()
            ids = list(_mine(probe, snapshot))
            if repeat:
                order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(repeat)).tolist()
                ids = [ids[i] for i in order]
            run.step(task.step_on, snapshot, ids)
            if way and not problem and (name := _narrow_digits(run)):
                problem = f"the gradient of {name} has no more digits than float32: a policy of mixed precision, or the function, computes in a narrower type"
        run.probe.close()
        if run.drew and probe.settings.against and trace_file.header_of(os.path.join(probe.settings.against, "rank-0.trace"))["world_size"] != probe.world_size:
            problem = ("forward passes take random numbers, which rows of another layout get differently; replay(step_on, dropout=False) leaves dropout out, "
                       "and other draws must be left out in step_on")  # fmt: skip
        failed = False
    except Exception as error:  # noqa: BLE001  the user's own function
        problem, failed = f"{'float64' if way else 'the trainers precision'}: {type(error).__name__}: {error}", True
    failed, narrow = any(_gather(probe, failed)), {op for each in _gather(probe, sorted(wide.narrow)) for op in each}
    if narrow and not failed:
        moved = _follows_narrow(run, task, probe, found)
        if moved and not problem:
            problem = (f"{', '.join(sorted(narrow)[:3])} computes in a narrower type, and the gradient of {moved[1]} at step {moved[0]} follows from it: "
                       "float64 there is rounded as the training is")  # fmt: skip
    problem = _together(probe, problem)
    if problem:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, f"rank-{probe.rank}.trace"))
    return problem, not failed
