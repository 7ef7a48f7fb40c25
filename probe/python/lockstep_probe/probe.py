"""The probe of one rank: what PyTorch's hooks show of each step, on its way into the rank's trace."""

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

from lockstep_probe import collectives, hashing, heartbeat, loader, model, patches, random_state, trace_file
from lockstep_probe.recorder import Recorder, hash_in

VERSION = "0.1.0"
_engine = torch.autograd.Variable._execution_engine


def say(text):
    """One message on stderr, with the rank."""
    rank = os.environ.get("RANK", "")
    sys.stderr.write(f"lockstep_probe{f' (rank {rank})' if rank else ''}: {text}\n")
    sys.stderr.flush()


def guarded(method):
    """Of the trainer's calls into the probe: counts their time, and switches the probe off where it fails. Training goes on."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if self.is_off or self._closed or os.getpid() != self._process:
            return None
        began = time.perf_counter()
        outer, self._inside = self._inside, True
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  whatever it is, the trainer must not see it
            if os.environ.get("LOCKSTEP_PROBE_STRICT"):
                raise
            self._give_up(error)
            return None
        finally:
            self._inside = outer
            if not outer:
                self.seconds += time.perf_counter() - began

    return call


def number_of(value):
    return float(value.detach()) if isinstance(value, torch.Tensor) else float(value)


def whole_numbers(ids):
    return [int(i) for i in (ids.tolist() if isinstance(ids, torch.Tensor) else ids)]


class Watched:
    """A parameter. `local`, `reduced`: this step's records so far; `sum`: of a sharded parameter's whole local gradients;
    `clipped`: the hash of a gradient that nobody had reduced when it was clipped."""

    __slots__ = ("alike", "clipped", "handles", "local", "name", "parameter", "parts", "reduced", "sum", "unsharded")

    def __init__(self, name, parameter, alike):
        self.name, self.parameter, self.alike = name, parameter, alike
        self.handles, self.unsharded = [], None
        self.clear()

    def clear(self):
        self.local = self.reduced = self.sum = self.clipped = None
        self.parts = {}


class Ledger:
    """Collectives of one step, in their order; `open`: those whose outputs are not hashed yet, by their work."""

    def __init__(self):
        self.calls, self.open = [], {}


class Step:
    """What is known of the open step."""

    def __init__(self, number, keeps, records, ledger):
        self.number, self.keeps, self.records = number, keeps, records
        self.ids, self.batches = [], []
        self.first, self.last = [], []  # records before and after the gradients'
        self.inputs, self.labels, self.row_losses = [], [], []
        self.losses, self.roots, self.terms = [], [], {}
        self.ledger = ledger
        self.backwards, self.buckets = 0, 0
        self.reduced = False  # has a wrapper reduced the gradients of a micro-step?
        self.asked = False  # step() has been called
        self.due = False  # parameters after the update are still to be recorded
        self.norm, self.clipped = None, {}  # of the whole gradient; what has been clipped by which norm
        self.stepped = []  # optimizers whose update has been made or left out
        self.updated = set()  # their parameters: gradients that they get afterwards are no longer this step's
        self.skipped = False
        self.scale = 1.0
        self.generators = self.drawing = self.drew_from = None
        self.draws = 0  # of forward passes


class Probe:
    """See `lockstep_probe.attach`."""

    def __init__(self, models, optimizers, settings, *, declare=None, average=None, own=(), first_step=0, tier="lines", rank=None, world_size=None):
        self.settings, self.tier = settings, tier
        self.models, self.optimizers = list(models), list(optimizers)
        self.average, self.own = average, tuple(own)
        self.declared = dict(declare or {})
        self.rank, self.world_size = rank, world_size
        self.is_off = not settings.on
        self.seconds, self.notes = 0.0, []
        self._number, self._step, self._steps_done = first_step - 1, None, 0
        self._process, self._inside, self._in_backward = os.getpid(), False, False
        self._prepared = self._finished = self._closed = self._failed = False
        self._watched, self._accumulates = {}, 1
        self._clip_norm = self._autocast = None  # as the first step shows them
        self._ids_at, self._kept_states, self._metrics = {}, {}, set()
        self._updates, self._writer, self._pulse = {}, None, None
        self._first_step = first_step
        self._next_ledger = Ledger()  # calls after a step's update belong to the step that follows
        self._replay = self.replicas = None
        self._asks = tier in ("lines", "replay")  # is step() called after updates? until a step has gone by without
        self._modes = None  # of each module: does it train?
        self._told_rows = False  # are sample ids given by rows()? else a DataLoader's are taken
        self._saw = {"samples": False, "loss": False, "row_losses": False}
        self._began = None
        self._lock = threading.RLock()
        if self.is_off:
            return
        self._open_heartbeat()
        patches.watch(self)
        atexit.register(self.finish)
        loader.install()
        self._handles = [handle for each in self.models for handle in self._before_forward(each)]
        if not self.models:
            self._search = torch.nn.modules.module.register_module_forward_pre_hook(self._first_forward)
        for optimizer in self.optimizers:
            self._listen_to_optimizer(optimizer)

    def _open_heartbeat(self):
        """As early as the rank is known: one that hangs before its first step is seen too."""
        rank, world_size = os.environ.get("RANK", self.rank), os.environ.get("WORLD_SIZE", self.world_size)
        if self.settings.heartbeat and self.tier != "replayed":
            self._pulse = heartbeat.open(self.settings.heartbeat, int(rank or 0), int(world_size or 1))
            self._pulse.step(max(self._number + 1, 0), "load")

    # What the trainer calls.

    @guarded
    def rows(self, ids, inputs=None, labels=None):
        """Sample ids of this rank's rows of the next forward pass, in their order; with accumulation once for each micro-step.

        `inputs`, `labels`: what the rows hold, [rows, ...]; traces keep a hash of each row.
        """
        step = self._open(begins=True)
        self._told_rows = True
        ids = whole_numbers(ids)
        step.ids += ids
        self._saw["samples"] = True
        for tensor, records in ((inputs, step.inputs), (labels, step.labels)):
            if tensor is None:
                continue
            tensor = hashing.plain(torch.as_tensor(tensor))
            if tensor.dim() and tensor.shape[0] == len(ids):
                records.append((ids, tensor))
            else:
                self._note(f"rows: inputs or labels of shape {list(tensor.shape)} for {len(ids)} ids are left out", once="rows")

    @guarded
    def step(self, loss=None, row_losses=None, counts=None):
        """Once for each update, after it: this rank's loss; with `row_losses` [rows] those of its rows, and `counts` what each counts."""
        step = self._step
        if step is None:
            self._note("step() was called before any forward or backward pass of the model: nothing is recorded of it", once="step")
            return
        step.asked = not self._is_held_back()
        if step.due:
            self._record_state(step)
        if loss is not None:
            step.losses.append(number_of(loss))
            self._saw["loss"] = True
        if row_losses is not None:
            rows = hashing.plain(row_losses).reshape(-1)
            if len(rows) == len(step.ids):
                step.row_losses = [(rows, None if counts is None else hashing.plain(torch.as_tensor(counts)).reshape(-1).to(torch.int64))]
                self._saw["row_losses"] = True
            else:
                self._note(f"step: {len(rows)} row losses for {len(step.ids)} sample ids are left out", once="row_losses")

    @guarded
    def term(self, name, value, weight=1.0):
        """A named part of the loss: loss = sum of weight * value."""
        step = self._open(begins=True)
        name = str(name).replace("/", ".")
        step.terms[name] = (number_of(value), float(weight))

    @guarded
    def metric(self, name, value, ids=None):
        """A metric after the last update: a number, or [rows] of held-out samples with their `ids`."""
        if self._step is None:
            self._open()
        if ids is not None:
            ids = whole_numbers(ids)
            tensor = torch.as_tensor(value)
            if not tensor.is_floating_point():
                tensor = tensor.to(torch.float64)
            self._step.last.append(self._recorder.tensor("evaluation", name, tensor, ids=ids, values=True))
        else:
            self._step.last.append(self._recorder.scalar("evaluation", name, number_of(value)))
        self._metrics.add(str(name))

    def replay(self, step_on, *, build=None, dropout=True):
        """`step_on(model, ids)`: forward and backward of this rank for the samples `ids`. `dropout=False`: without dropout there.

        `build()` makes a fresh model, wrapped as in training, where the probe cannot copy one (FSDP2); under a default dtype of float64 too.
        """
        if not self.is_off:
            self._replay = (step_on, build, dropout)
            self.tier = "replay"

    # The step.

    def _open(self, begins=False):
        """The step that is open, or the next one. `begins`: the trainer begins a batch; a step that it has called over, and not updated, is left out."""
        with self._lock:
            step = self._step
            if step is not None and begins and step.asked and step.backwards and not step.stepped and self.optimizers:
                for optimizer in list(self.optimizers):
                    self._leave_out(optimizer)
            if step is not None and not self._is_over(step):
                return step
            if step is not None:
                self._write()
            if not self._prepared:
                self._prepare()
            self._number += 1
            keeps = self.settings.keeps(self._number, self._step_bytes)
            ledger, self._next_ledger = self._next_ledger, Ledger()
            step = self._step = Step(self._number, keeps, self.settings.records(self._number, self._step_bytes), ledger)
            for each in self._watched.values():
                each.clear()
            self._beat("forward")
            if step.records:
                step.generators = random_state.states(self._recorder.hashes.xxh3)
            if self._modes is None:
                self._modes = [{name: m.training for name, m in each.named_modules()} for each in self.models]
            if keeps:
                step.first += self._state("snapshot")
                self._keep_first_state()
            self._check_parameters()
            return step

    def _is_over(self, step):
        return bool(step.stepped) and all(any(o is s for s in step.stepped) for o in self.optimizers)

    def _prepare(self):
        """Before the first step: who this rank is, which parameters there are, and the trace's file."""
        self._prepared = True
        self._began = time.perf_counter()
        together = dist.is_available() and dist.is_initialized()
        if self.rank is None:
            self.rank = dist.get_rank() if together else int(os.environ.get("RANK", 0))
        if self.world_size is None:
            self.world_size = dist.get_world_size() if together else int(os.environ.get("WORLD_SIZE", 1))
        if not self.models:
            self.models = [model.bare(m) for m in model.owners([p for o in self.optimizers for g in o.param_groups for p in g["params"]])]
            self._handles += [handle for each in self.models for handle in self._before_forward(each)]
        hashes = hashing.load()
        if hashes.name != "C library":
            self._note(f"hashes are computed by {hashes.name}")
        self._recorder = Recorder(hashes, self.settings.level, self.rank == 0)
        self._find_parameters()
        patches.watch_pipelines()
        self._wrappers = [w for w in map(model.find_wrapper, self.models) if w is not None]
        sharded = any(model.is_sharded(w.parameter) for w in self._watched.values())
        self._by_hand = self.world_size > 1 and not self._wrappers and not sharded
        self._step_bytes = 6 * sum(w.parameter.numel() * w.parameter.element_size() for w in self._watched.values())
        self._say_what_is_not_seen()
        path = os.path.join(self.settings.out, f"rank-{self.rank}.trace")
        self._writer = trace_file.Writer(path, hashes)
        if together and self.tier != "replayed":
            try:
                collectives.install()
                collectives.listen(self)
            except (RuntimeError, AttributeError) as error:
                self._note(f"collectives are not recorded: this torch ({torch.__version__}) has not the hooks for them ({error})")
        self._header_due = True
        keeps = self.settings.keeps(0, self._step_bytes)
        self._initial = self._parameters(keeps, keeps)
        self._describe(done=False)
        self._setup_seconds = time.perf_counter() - self._began

    def _say_what_is_not_seen(self):
        if any(model.has_flat_parameters(m) for m in self.models):
            self._note("FullyShardedDataParallel (FSDP1) hides parameters in flat ones: their parts are recorded as they are, and not put together")
        if any(model.is_compiled(m) for m in self.models):
            self._note("torch.compile: gradients, parameters and DDP's and the program's own collectives are recorded as without it; collectives "
                       "inside a compiled graph (functional ones) and CUDA graphs' replays are not")  # fmt: skip
        if getattr(torch._dynamo.config, "compiled_autograd", False) if "torch._dynamo" in sys.modules else False:
            self._note("compiled autograd may pass hooks of gradients by: local gradients may be missing")
        for optimizer in self.optimizers:
            if type(optimizer).__name__ == "LBFGS":
                self._note("LBFGS computes gradients within its step: local gradients are those of its last evaluation")

    def _find_parameters(self):
        """Names of all parameters, and hooks on those that have none yet."""
        ignored = {name for m in self.models for name in getattr(m, "_ddp_params_and_buffers_to_ignore", ())}
        known = set()
        for prefix, name, p in model.named(self.models, "named_parameters"):
            known.add(id(p))
            if id(p) not in self._watched:
                own = name in ignored or any(name.startswith(start) for start in self.own)
                self._listen(Watched(prefix + name, p, not own))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    known.add(id(p))
                    if id(p) not in self._watched:
                        self._listen(Watched(f"unnamed {len(self._watched)}", p, True))
        self._find_unsharded()
        for key in [key for key in self._watched if key not in known]:
            for handle in self._watched.pop(key).handles:
                handle.remove()

    def _listen(self, watched):
        self._watched[id(watched.parameter)] = watched
        p = watched.parameter
        if p.requires_grad and p.is_leaf:
            watched.handles.append(p.register_post_accumulate_grad_hook(functools.partial(self._accumulated, watched)))
            watched.handles.append(p.register_hook(functools.partial(self._added, watched)))

    def _find_unsharded(self):
        groups = [group for m in self.models for group in model.fsdp_groups(m)]
        if groups and not patches.watch_unsharded():
            self._note("this torch's FSDP2 does not show a rank's own gradients: local gradients are missing", once="unsharded")
        for group in groups:
            for p in group.fsdp_params:
                self.on_unsharded(p)

    def on_unsharded(self, sharded):
        """The whole form of an FSDP2 parameter, whose gradient is the rank's own."""
        watched = None if self.is_off else self._watched.get(id(sharded.sharded_param))
        whole = getattr(sharded, "_unsharded_param", None)
        if watched is None or whole is None or watched.unsharded is whole:
            return
        watched.unsharded = whole
        if whole.requires_grad:
            watched.handles.append(whole.register_hook(functools.partial(self._unsharded_added, watched)))

    def _check_parameters(self):
        """Parameters that came after the probe, or were replaced, are recorded from here on, by name."""
        now = [p for o in self.optimizers for g in o.param_groups for p in g["params"]] + [p for m in self.models for p in m.parameters()]
        whole = {id(w.unsharded) for w in self._watched.values() if w.unsharded is not None}  # FSDP2 puts these in the modules for a while
        if all(id(p) in self._watched or id(p) in whole for p in now):
            return
        before = {w.name for w in self._watched.values()}
        replaced = {w.name: w for w in self._watched.values()}
        self._find_parameters()
        added = [w.name for w in self._watched.values() if w.name not in before]
        if added and self._steps_done:
            self._note(f"parameters were added after the probe was attached and are recorded from step {self._number} on: {', '.join(added[:5])}"
                       + (f" and {len(added) - 5} more" if len(added) > 5 else ""))  # fmt: skip
        elif self._steps_done and replaced:
            self._note(f"parameters were replaced by others of the same names before step {self._number}; the new ones are recorded from there on")

    # Hooks.

    def _before_forward(self, module):
        """Lightning calls `training_step` in one process, and the module itself only under DistributedDataParallel."""
        called = [module, *module.children()] if hasattr(module, "training_step") else [module]
        return [each.register_forward_pre_hook(self._forward_begins, prepend=True, with_kwargs=True) for each in called]

    def _first_forward(self, module, inputs):
        """Of whatever module is called first with one of the optimizer's parameters."""
        if torch.compiler.is_compiling() or self._inside:
            return
        if self.is_off or self._prepared:
            self._search.remove()
            return
        wanted = {id(p) for o in self.optimizers for g in o.param_groups for p in g["params"]}
        if any(id(p) in wanted for p in module.parameters()):
            self._forward_begins(module, inputs, {})

    def _forward_begins(self, module, args, kwargs):
        # A compiled model's steps begin with rows() or with the backward pass: hooks would be compiled into its graph.
        if torch.compiler.is_compiling() or self.is_off or not module.training or not torch.is_grad_enabled() or self._inside:
            return
        self._on_forward((args, kwargs))

    @guarded
    def _on_forward(self, inputs):
        step = self._open(begins=True)
        if not self._told_rows:
            step.ids += loader.ids_of(inputs, self.world_size, step.batches)
            self._saw["samples"] |= bool(step.ids)
        if step.records:
            step.drawing = torch.get_rng_state()
        if self._autocast is None:
            device = next((w.parameter.device.type for w in self._watched.values()), "cpu")
            if torch.is_autocast_enabled(device):
                self._autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")

    def _added(self, watched, gradient):
        """What a backward pass adds to a parameter's gradient, before it is added."""
        # DistributedDataParallel passes none for a parameter that nothing used.
        if gradient is not None and not self.is_off and self._wants_parts() and watched.unsharded is None:
            self._add_part(watched, gradient)

    def _wants_parts(self):
        step = self._step
        return step is not None and step.keeps and not self._is_over(step)

    @guarded
    def _add_part(self, watched, gradient):
        if id(watched.parameter) in self._step.updated:
            return
        part = model_part(self, gradient, watched.parameter).clone()
        micro = self._step.backwards
        watched.parts[micro] = watched.parts[micro] + part if micro in watched.parts else part

    def _accumulated(self, watched, parameter):
        if not self.is_off:
            self._on_accumulated(watched, parameter)

    @guarded
    def _on_accumulated(self, watched, parameter):
        step = self._backward_runs()
        if not step.records or watched.unsharded is not None or self._is_held_back() or id(parameter) in step.updated:
            return
        gradient = parameter.grad
        if gradient is not None:
            # Where each micro-step is reduced, this holds the mean of earlier ones and the own last: their mean has the reduced gradient's bits.
            watched.local = self._gradient("local gradients", watched, gradient)

    def _unsharded_added(self, watched, gradient):
        if not self.is_off:
            self._on_unsharded(watched, gradient)

    @guarded
    def _on_unsharded(self, watched, gradient):
        """FSDP2's whole gradient of this rank, before the reduction."""
        step = self._backward_runs()
        if not step.records or id(watched.parameter) in step.updated:
            return
        gradient = model_part(self, gradient, watched.unsharded)
        if step.keeps:
            micro = step.backwards
            watched.parts[micro] = watched.parts[micro] + gradient if micro in watched.parts else gradient.clone()
        if step.keeps or self._accumulates > 1:
            watched.sum = gradient.clone() if watched.sum is None else watched.sum + gradient
        elif watched.local is None:
            watched.local = self._record_unsharded(watched, gradient)
        else:
            watched.local = None  # used twice, or an accumulation that began in this step: the sum is not known
            self._accumulates = max(self._accumulates, 2)

    def _record_unsharded(self, watched, gradient):
        placement = model.placement_of(watched.unsharded)
        return self._recorder.tensor("local gradients", watched.name, self._unscaled(gradient), placement=placement, values=self._step.keeps)

    def _backward_runs(self):
        step = self._open()
        if not self._in_backward:
            self._in_backward = True
            self._count_draws(step)
            self._beat("backward")
            _engine.queue_callback(self._queue_end)
        return step

    def _count_draws(self, step):
        """Numbers that the forward pass took, by dropout for instance: of another layout each row gets others."""
        if step.drawing is None:
            return
        now = torch.get_rng_state()
        if not torch.equal(step.drawing, now):
            step.draws += random_state.draws_between(step.drawing, now) or 1
            step.drew_from = step.drew_from or self._recorder.hashes.xxh3(hashing.raw(step.drawing))
        step.drawing = None

    def _queue_end(self):
        # DistributedDataParallel queues its own callback during the backward pass; one that is queued from a callback comes after it.
        _engine.queue_callback(self._backward_ends)

    def _backward_ends(self):
        self._in_backward = False
        if not self.is_off:
            self._on_backward_end()

    @guarded
    def _on_backward_end(self):
        step = self._step
        step.backwards += 1
        self._finish_calls(step.ledger, reducer=True)
        if self._is_held_back() or not step.records:
            return
        step.reduced = bool(self._wrappers)
        for watched in self._watched.values():
            gradient = watched.parameter.grad
            if gradient is None or id(watched.parameter) in step.updated:
                continue
            if watched.sum is not None:
                watched.local = self._record_unsharded(watched, watched.sum)
            if self.world_size == 1:
                watched.reduced = self._of_one_process(watched)
            elif not self._by_hand:
                watched.reduced = self._gradient("reduced gradients", watched, gradient)
        self._beat("update")

    def _of_one_process(self, watched):
        """The same values as the local gradient, under the other phase: there is nothing between the two."""
        return self._gradient("reduced gradients", watched, watched.parameter.grad)

    def _is_held_back(self):
        return any(not w.require_backward_grad_sync for w in self._wrappers)

    def _gradient(self, phase, watched, gradient):
        part = model_part(self, gradient, watched.parameter)
        placement = model.placement_of(watched.parameter)
        alike = phase != "local gradients" and watched.alike and placement is None
        return self._recorder.tensor(phase, watched.name, self._unscaled(part) if phase != "applied gradients" else part, alike=alike,
                                     placement=placement, values=self._step.keeps)  # fmt: skip

    def _unscaled(self, gradient):
        scale = self._step.scale
        return gradient if scale == 1 else gradient.detach() / scale

    def on_scale(self, scale):
        if not self.is_off:
            self._on_scale(scale)

    @guarded
    def _on_scale(self, scale):
        self._open().scale = scale

    def on_loss(self, loss):
        """What backward() is called on: the loss, where the trainer does not give it."""
        step = self._step
        if not self.is_off and step is not None and not self._inside and not self._is_over(step):
            step.roots.append(loss.detach())

    def on_pipeline_scale(self, parameters, factor):
        if not self.is_off and self._step is not None and self._step.records:
            self._on_pipeline_scale({id(p) for p in parameters}, factor)

    @guarded
    def _on_pipeline_scale(self, parameters, factor):
        """A pipeline schedule divides the sum of its micro-batches' gradients once they are all there."""
        for watched in self._watched.values():
            gradient = watched.parameter.grad
            if id(watched.parameter) not in parameters or gradient is None or watched.local is None:
                continue
            watched.parts = {micro: part / factor for micro, part in watched.parts.items()}
            if watched.sum is not None:
                watched.sum = watched.sum / factor
                watched.local = self._record_unsharded(watched, watched.sum)
            elif not self._wrappers:
                watched.local = self._gradient("local gradients", watched, gradient)
            elif watched.parts:
                watched.local = self._gradient("local gradients", watched, sum(watched.parts.values()))
            else:
                watched.local = None
            if watched.reduced is not None:
                watched.reduced = self._gradient("reduced gradients", watched, gradient)

    def on_clip(self, parameters, max_norm, norm):
        if not self.is_off and self._step is not None and any(id(p) in self._watched for p in parameters):
            self._on_clip(parameters, max_norm, norm)

    @guarded
    def _on_clip(self, parameters, max_norm, norm):
        step = self._step
        if self.world_size > 1 and step.records:
            self._reduced_by_hand()
        if max_norm is None or self._is_over(step):
            return
        with self.paused():
            if model.is_sharded(norm):
                norm = norm.full_tensor()
        trained = {id(w.parameter) for w in self._watched.values() if w.parameter.grad is not None}
        # Several calls with one norm, as DTensors and plain tensors take, are one clipping.
        clipped = step.clipped.setdefault(float(norm), set())
        clipped.update(map(id, parameters))
        if trained <= clipped:
            step.norm = float(norm)
            if self._clip_norm is None and 0 < max_norm < float("inf"):
                self._clip_norm = max_norm

    def _reduced_by_hand(self):
        """What clipping or the optimizer takes, of gradients that no wrapper has reduced."""
        for watched in self._watched.values():
            gradient = watched.parameter.grad
            if watched.reduced is None and gradient is not None and id(watched.parameter) not in self._step.updated:
                if watched.local is None and self._wrappers and not self._step.reduced and watched.unsharded is None:
                    watched.local = self._gradient("local gradients", watched, gradient)
                watched.reduced = self._gradient("reduced gradients", watched, gradient)

    def _clipped_too_early(self):
        """Were a trainer's own gradients clipped, and reduced afterwards? Then what it has reduced is what comes next."""
        for watched in self._watched.values():
            if watched.clipped is None or watched.parameter.grad is None:
                continue
            if hash_in(self._gradient("local gradients", watched, watched.parameter.grad)) != watched.clipped:
                watched.reduced = self._gradient("reduced gradients", watched, watched.parameter.grad)
            watched.clipped = None

    def after_clip(self, parameters):
        if self._step is not None and self._by_hand_is_open(parameters):
            self._after_clip()

    def _by_hand_is_open(self, parameters):
        return not self.is_off and self._prepared and self._by_hand and self._step.records and any(id(p) in self._watched for p in parameters)

    @guarded
    def _after_clip(self):
        for watched in self._watched.values():
            gradient = watched.parameter.grad
            if gradient is not None and watched.local is not None and watched.reduced is not None:
                if hash_in(watched.local) == hash_in(watched.reduced):
                    watched.clipped = hash_in(self._gradient("local gradients", watched, gradient))

    def _listen_to_optimizer(self, optimizer):
        self._handles += [optimizer.register_step_pre_hook(self._before_update), optimizer.register_step_post_hook(self._after_update)]

    def add_optimizer(self, optimizer):
        if not any(optimizer is o for o in self.optimizers):
            self.optimizers.append(optimizer)
            self._listen_to_optimizer(optimizer)

    def _before_update(self, optimizer, args, kwargs):
        """The update's gradients are there; or, where the optimizer takes a closure (as Lightning's does), after it."""
        if self.is_off:
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None or type(optimizer).__name__ == "LBFGS":
            self._on_update(optimizer)
            return None

        def computed():
            loss = closure()
            if not self.is_off:
                self._on_update(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": computed}

    @guarded
    def _on_update(self, optimizer):
        step = self._step
        if step is not None and step.due and any(optimizer is s for s in step.stepped):
            return  # a second update of the same step: its end shows in the parameters
        if step is None or any(optimizer is s for s in step.stepped):
            # Of another optimizer that never steps nothing more is expected.
            if step is not None:
                self.optimizers = [o for o in self.optimizers if any(o is s for s in step.stepped)]
            step = self._open()
        self._beat("update")
        if not step.records:
            return
        if self.world_size > 1:
            self._reduced_by_hand()
            self._clipped_too_early()
        self._record_rates(optimizer)
        for group in optimizer.param_groups:
            for p in group["params"]:
                watched = self._watched.get(id(p))
                if watched is not None and p.grad is not None:
                    step.last.append(self._gradient("applied gradients", watched, p.grad))

    def _record_rates(self, optimizer):
        """The first group's rate, and those of other groups that have another, by the group's first parameter."""
        first = float(self.optimizers[0].param_groups[0]["lr"])
        for group in optimizer.param_groups:
            rate, watched = float(group["lr"]), self._watched.get(id(group["params"][0])) if group["params"] else None
            if group is self.optimizers[0].param_groups[0]:
                self._step.first.append(self._recorder.scalar("control", "learning_rate", rate, alike=True))
            elif rate != first and watched is not None:
                self._step.first.append(self._recorder.scalar("control", f"learning_rate/{watched.name}", rate, alike=True))

    def _after_update(self, optimizer, _args, _kwargs):
        if not self.is_off:
            self._on_updated(optimizer)

    @guarded
    def _on_updated(self, optimizer):
        self._updates[id(optimizer)] = self._updates.get(id(optimizer), 0) + 1
        if self._step is not None and not any(optimizer is s for s in self._step.stepped):
            self._end_update(optimizer)

    def _end_update(self, optimizer):
        step = self._step
        step.stepped.append(optimizer)
        step.updated |= {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not self._is_over(step):
            return
        if step.records:
            self._gradients_of_step(step)
            # What the trainer does between its optimizer's step and step(), such as averaging weights, belongs to this step.
            step.due = self._asks and not step.asked
            if not step.due:
                self._record_state(step)
        self._beat("after update")

    def _record_state(self, step):
        step.due = False
        step.last += self._parameters(step.keeps, step.keeps or self.settings.level == "full")

    def steps_of(self, optimizer):
        return self._updates.get(id(optimizer), 0)

    def on_skipped(self, optimizer):
        if not self.is_off and self._step is not None and any(optimizer is o for o in self.optimizers):
            self._on_skipped(optimizer)

    @guarded
    def _on_skipped(self, optimizer):
        self._leave_out(optimizer)

    def _leave_out(self, optimizer):
        self._step.skipped = True
        if self._step.records:
            self._record_rates(optimizer)
        self._end_update(optimizer)

    # Collectives.

    @contextlib.contextmanager
    def paused(self):
        """Collectives of the probe itself are not the trainer's."""
        outer, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = outer

    def begin(self, call):
        if not self.is_off and not self._closed and not self._inside and self._prepared:
            self._begin_call(call)

    @guarded
    def _begin_call(self, call):
        step = self._step
        ledger = step.ledger if step is not None and not self._is_over(step) else self._next_ledger
        if ledger is not self._next_ledger and not step.records:
            return
        tensors = call.inputs or call.outputs
        hash_of = self._recorder.hash_of
        ranks = dist.get_process_group_ranks(call.group)
        everyone = len(ranks) == self.world_size
        group = "world" if everyone else f"{call.group.group_desc or 'group'} {'-'.join(map(str, ranks))}"
        first = hashing.plain(tensors[0].flatten()[:1]) if tensors else torch.zeros(1)
        # Calls of one tag are compared with each other: other operations, types and groups are other calls.
        kind = f" {str(tensors[0].dtype).removeprefix('torch.')}" if tensors else ""
        tag = call.tag or f"{call.op}{kind}{'' if everyone else f' of {group}'}"
        from_reducer = self._in_backward and call.op == "all_reduce" and call.reduction is None and bool(self._wrappers)
        if from_reducer and tensors[0].is_floating_point():
            group, tag, call.reduction = ("gradients" if everyone else f"gradients {group}"), f"bucket {step.buckets}", "sum"
            step.buckets += 1
        elif from_reducer:
            group, call.reduction = "control", "sum"
        hash_given = sum(map(hash_of, call.inputs)) & (1 << 64) - 1
        shape = tuple(tensors[0].shape) if len(tensors) == 1 else (sum(t.numel() for t in tensors),)
        if call.root >= 0 and not everyone and call.root < len(ranks):
            call.root = ranks[call.root]
        call.slot = len(ledger.calls)
        ledger.calls.append([call, group, tag, hash_given, 0, hashing.DTYPES[first.dtype], shape, from_reducer])
        call.tag = ledger

    def issued(self, call):
        if call.slot is None or self.is_off:
            return
        if call.op == "barrier" or not call.outputs:
            call.outputs = call.work = None
            return
        call.tag.open[id(call.work)] = call

    def finished(self, work):
        if self.is_off:
            return
        for ledger in (self._step.ledger if self._step is not None else None, self._next_ledger):
            call = ledger.open.pop(id(work), None) if ledger is not None else None
            if call is not None:
                self._hash_output(ledger, call)

    @guarded
    def _hash_output(self, ledger, call):
        ledger.calls[call.slot][4] = sum(map(self._recorder.hash_of, call.outputs)) & (1 << 64) - 1
        call.outputs = call.work = None

    def _finish_calls(self, ledger, reducer=False):
        """Of works that nobody has waited for in Python; `reducer`: the Reducer's alone, which its own callback has waited for."""
        for key, call in list(ledger.open.items()):
            if reducer and not ledger.calls[call.slot][7]:
                continue
            del ledger.open[key]
            if call.op not in ("send", "recv"):
                call.work.wait()
            elif not call.work.is_completed():
                continue
            self._hash_output(ledger, call)

    # Records.

    def _parameters(self, values, state):
        """Parameters, buffers, averages and, if `state`, the optimizer's state, as they are now."""
        records = []
        for watched in self._watched.values():
            records.append(self._held("parameters", watched.name, watched.parameter, watched.alike, values))
        for name, buffer in self._buffers():
            records.append(self._held("parameters", "buffer/" + name, buffer, False, values))
        if self.average is not None:
            inner = getattr(self.average, "module", self.average)
            by_name = {w.name: w.alike for w in self._watched.values()}
            for name, p in inner.named_parameters():
                if name in by_name:
                    records.append(self._held("averaged weights", name, p, by_name[name], values))
        if state and self._steps_done + bool(self._step):
            records += self._optimizer_state("optimizer state", values)
        return records

    def _buffers(self):
        for prefix, name, buffer in model.named(self.models, "named_buffers"):
            if buffer is not None:
                yield prefix + name, buffer

    def _held(self, phase, name, tensor, alike, values):
        placement = model.placement_of(tensor)
        part = model.held(tensor.detach())
        return self._recorder.tensor(phase, name, part, alike=alike and placement is None, placement=placement, values=values)

    def _optimizer_state(self, phase, values):
        records, counts = [], set()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    watched = self._watched.get(id(p))
                    for key, value in optimizer.state.get(p, {}).items() if watched else ():
                        if key in model.MOMENTS and isinstance(value, torch.Tensor):
                            records.append(self._held(phase, f"{model.MOMENTS[key]}/{watched.name}", value, watched.alike, values))
                        elif key == "step":
                            counts.add(int(value))
        updates = max(counts) if counts else self._first_step + max(self._updates.values(), default=0)
        records.append(self._recorder.scalar(phase, "updates", updates, alike=True))
        return records

    def _state(self, phase):
        """Everything that a step begins with, with values."""
        records = [self._held(phase, w.name, w.parameter, w.alike, True) for w in self._watched.values()]
        records += [self._held(phase, "buffer/" + name, buffer, False, True) for name, buffer in self._buffers()]
        return records + self._optimizer_state(phase, True)

    def _keep_first_state(self):
        """What the first step began with, by which a replay function is tried."""
        if self._replay is not None and not self._kept_states:
            self._kept_states[self._number] = (
                {w.name: model.held(w.parameter.detach()).clone() for w in self._watched.values()},
                {name: buffer.detach().clone() for name, buffer in self._buffers()},
            )

    def _gradients_of_step(self, step):
        """Local gradients, their parts, reduced gradients, in the order of parameters."""
        several = step.backwards > 1
        self._accumulates = max(self._accumulates, step.backwards)
        for watched in self._watched.values():
            if watched.local is None and watched.reduced is not None and not self._by_hand:
                # This rank has not used it, and others have: DistributedDataParallel adds nothing for it.
                if watched.unsharded is None and not model.is_sharded(watched.parameter):
                    watched.local = self._gradient("local gradients", watched, torch.zeros_like(watched.parameter))
            if watched.local is None:
                continue
            step.first.append(watched.local)
            if several and step.keeps and watched.parts:
                self._gradient_parts(step, watched)
        step.first += [w.reduced for w in self._watched.values() if w.reduced is not None]

    def _gradient_parts(self, step, watched):
        whole = sum(watched.parts.values())
        for micro in range(step.backwards):
            part = watched.parts.get(micro)
            part = self._unscaled(torch.zeros_like(whole) if part is None else part)
            dot = float((part.double() * self._unscaled(whole).double()).sum())
            step.first.append(self._recorder.tensor("gradient parts", f"micro {micro}/{watched.name}", part, dot=dot, values=True))

    def _loss_records(self, step):
        records = []
        if step.losses:
            records.append(self._recorder.scalar("loss", "loss", sum(step.losses) / len(step.losses)))
        elif step.roots and self.tier != "replayed":
            self._saw["loss"] = True
            records.append(self._recorder.scalar("loss", "loss", sum(float(root) for root in step.roots) / step.scale))
        for name, (value, weight) in step.terms.items():
            records += [self._recorder.scalar("loss", f"loss/{name}", value), self._recorder.scalar("loss", f"weight/{name}", weight)]
        for rows, counts in step.row_losses:
            records.append(self._recorder.tensor("loss", "row_losses", rows, ids=step.ids, values=step.keeps))
            if counts is not None and len(counts) == len(step.ids):
                records.append(self._recorder.tensor("loss", "row_counts", counts, ids=step.ids, values=True))
        return records

    def _input_records(self, step):
        records = []
        if step.inputs:
            ids = [i for each in step.inputs for i in each[0]]
            hashes = torch.cat([self._recorder.hashes.row_hashes(each[1]) for each in step.inputs])
            records.append(self._recorder.tensor("inputs", "inputs", hashes, ids=ids, values=True))
        if step.labels:
            ids = [i for each in step.labels for i in each[0]]
            labels = [each[1] for each in step.labels]
            whole = all(label.dim() == 1 and not label.is_floating_point() for label in labels)
            rows = torch.cat([label.to(torch.int64) if whole else self._recorder.hashes.row_hashes(label) for label in labels])
            records.append(self._recorder.tensor("inputs", "labels", rows, ids=ids, values=True))
        return records

    def _write(self, kind=trace_file.STEP):
        step, self._step = self._step, None
        self._steps_done += 1
        if self._header_due:
            self._writer.header(self._header(step))
            self._writer.step(-1 if step.number == 0 else step.number - 1, self._initial)
            self._header_due, self._initial = False, None
        if not step.records:
            return
        if step.due:
            self._asks = False
            self._record_state(step)
        self._finish_calls(step.ledger)
        records = []
        if step.ids:
            records.append(self._recorder.samples(step.ids))
        if step.keeps:
            self._ids_at[step.number] = list(step.ids)
        records += self._random_records(step)
        records += self._input_records(step) + self._loss_records(step)
        if step.scale != 1:
            records.append(self._recorder.scalar("control", "loss_scale", step.scale))
        if step.skipped:
            records.append(self._recorder.scalar("control", "skipped", 1.0))
        if step.norm is not None:
            records.append(self._recorder.scalar("gradient norm", "gradient_norm", step.norm, alike=True))
        for call, group, tag, given, got, dtype, shape, _ in step.ledger.calls:
            records.append(self._recorder.collective(call, group, tag, given, got, dtype, shape))
        self._writer.step(step.number, records + step.first + step.last, kind)

    def _random_records(self, step):
        now = random_state.states(self._recorder.hashes.xxh3)
        records = [self._recorder.random(*stream) for stream in random_state.used(step.generators, now)]
        if step.draws:
            records.append(self._recorder.random("process/model", step.drew_from, step.draws))
        return records

    def _header(self, step):
        declared = {"strip_prefixes": ["module.", "_orig_mod."]}
        names = {id(w.parameter): w.name for w in self._watched.values()}
        if len(self.optimizers) == 1:
            settings = model.settings_of(self.optimizers[0])
            if settings:
                declared["optimizer"] = settings
            parameters = model.group_settings(self.optimizers[0], names)
            if parameters:
                declared["parameters"] = parameters
        if self._clip_norm is not None:
            declared["clip_norm"] = self._clip_norm
        if step.backwards > 1:
            declared["accumulation"] = step.backwards
        if self._autocast:
            declared["precision"] = self._autocast
        groups, replicas = model.mesh_facts([w.parameter for w in self._watched.values()])
        if groups:
            declared["groups"] = groups
        if replicas is None and model.is_data_parallel(self.models, [w.parameter for w in self._watched.values()], self.world_size):
            replicas = [list(range(self.world_size))]
        if replicas and self.world_size > 1:
            declared["replicas"] = replicas
        declared |= self.declared
        self.replicas = declared.get("replicas")
        return {
            "config_hash": os.environ.get("LOCKSTEP_RUN") or os.path.basename(self.settings.out) or "run", "rank": self.rank,
            "world_size": self.world_size, "trainer": os.path.basename(sys.argv[0] or "python"), "level": self.settings.level,
            "started_by": f"lockstep_probe {VERSION}", "declared": declared,
        }  # fmt: skip

    # Ends.

    def _note(self, text, once=None):
        if once and any(n == once for n, _ in self.notes):
            return
        self.notes.append((once or text, text))
        if self.rank in (0, None) or not self._prepared or once:
            say(text)

    def _give_up(self, error):
        if self.is_off:
            return
        self.is_off = True
        where = self._step.number if self._step is not None else self._number
        if isinstance(error, OSError):
            say(f"cannot write {self.settings.out}: {error.strerror or error}; nothing is recorded from step {where} on, and training goes on")
        else:
            say(f"{type(error).__name__}: {error}; nothing is recorded from step {where} on, and training goes on")
        self.notes.append(("off", f"switched off at step {where}: {error}"))
        with contextlib.suppress(Exception):
            if self._writer is not None:
                self._writer.finish(whole=False)
            self._describe(done=False)

    def on_exception(self):
        self._failed = True

    def _beat(self, doing):
        if self._pulse is not None:
            self._pulse.step(max(self._number, 0), doing)

    def finish(self):
        """Writes what is left, and replays steps if there is a replay function. At the end of the process by itself."""
        if self.is_off or self._finished or os.getpid() != self._process:
            return
        self._finished = True
        atexit.unregister(self.finish)
        self._finish()

    def _let_go(self):
        for handle in [*self._handles, *(h for w in self._watched.values() for h in w.handles)]:
            handle.remove()

    def detach(self):
        """Before its first step: another probe takes its place."""
        self.is_off = True
        self._let_go()

    @guarded
    def _finish(self):
        if not self._prepared:
            say("the model was never trained: nothing is recorded")
            self.is_off = True
            return
        if self._step is not None:
            over = self._is_over(self._step)
            if over or self._failed:
                if not over:
                    self._gradients_of_step(self._step)
                self._write(trace_file.FAILED_STEP if self._failed and not over else trace_file.STEP)
            self._step = None
        whole = not self._header_due and not self._failed
        seconds = time.perf_counter() - self._began
        self._writer.finish(whole)
        self._seconds_whole = seconds
        self._closed = True  # what a replay function calls of the probe is no step of training
        collectives.leave(self)
        self._let_go()
        if self.rank == 0 and self._steps_done:
            own, probes = max(seconds - self.seconds, 1e-9), max(self.seconds - self._setup_seconds, 0.0)
            say(f"{self._steps_done} steps at level {self.settings.level} in {self.settings.out}: {self._writer.size() / 1e6:.1f} MB a rank; "
                f"{1000 * probes / self._steps_done:.3g} ms a step beside the training's {1000 * own / self._steps_done:.3g} ms "
                f"({100 * probes / own:.1f} %)")  # fmt: skip
        self._describe(done=whole)
        if self._replay is not None and whole:
            from lockstep_probe import replay

            self._beat("replay")
            replay.replay(self, *self._replay)
            self._describe(done=True)
        if self._pulse is not None:
            self._pulse.close()
        self.is_off = True

    # Replays: a step without an update.

    @guarded
    def _end_replayed(self):
        if self._by_hand:
            self._reduce_replayed()
        self._gradients_of_step(self._step)
        self._write()

    def _reduce_replayed(self):
        """Of a trainer that reduces by itself: what the replay function has reduced, or else the mean over ranks."""
        watched = [w for w in self._watched.values() if w.local is not None and w.parameter.grad is not None]
        together = next((ranks for ranks in self.replicas or () if self.rank in ranks), range(self.world_size))
        with self.paused():
            reduces = torch.tensor(any(hash_in(self._gradient("local gradients", w, w.parameter.grad)) != hash_in(w.local) for w in watched))
            reduces = reduces.to(torch.int32)
            dist.all_reduce(reduces, op=dist.ReduceOp.MAX)
            if not reduces and len(together) not in (1, self.world_size):
                return  # some of the ranks: how, the probe does not know
            for each in watched if not reduces and len(together) > 1 else ():
                dist.all_reduce(each.parameter.grad)
                if self.declared.get("gradient_reduction") != "sum":
                    each.parameter.grad /= self.world_size
        self._reduced_by_hand()

    @guarded
    def _close_replayed(self):
        self._finished = True
        atexit.unregister(self.finish)
        self._writer.finish(whole=True)
        collectives.leave(self)
        self.is_off = True

    def _describe(self, done):
        """rank-R.probe.json: what the run has recorded, for `lockstep`."""
        if self.tier == "replayed":
            return
        wrapper = "none"
        if self._wrappers:
            wrapper = "ddp"
        elif any(model.fsdp_groups(m) for m in self.models):
            wrapper = "fsdp2"
        elif any(model.is_sharded(w.parameter) for w in self._watched.values()):
            wrapper = "dtensor"
        facts = {
            "format": 1, "tier": self.tier, "probe": VERSION, "torch": torch.__version__, "wrapper": wrapper, **self._saw,
            "metrics": sorted(self._metrics), "replay": getattr(self, "replayed", False), "float64": getattr(self, "replayed_wide", False),
            "level": self.settings.level, "steps": self._steps_done, "done": done, "world_size": self.world_size,
            "seconds": round(getattr(self, "_seconds_whole", 0.0), 4), "probe_seconds": round(self.seconds, 4),
            "dropout": any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for each in self.models for m in each.modules()),
            "notes": [text for _, text in self.notes],
        }  # fmt: skip
        path = os.path.join(self.settings.out, f"rank-{self.rank}.probe.json")
        with open(path + ".new", "w") as file:
            json.dump(facts, file, indent=1)
        os.replace(path + ".new", path)


def model_part(probe, gradient, parameter):
    """The rank's part of a gradient; partial sums of tensor-parallel ranks are added up first, as the update will."""
    if model.is_sharded(gradient) and any(kind.is_partial() for kind in gradient.placements):
        with probe.paused():
            gradient = gradient.redistribute(placements=parameter.placements)
    return model.held(gradient).detach()
