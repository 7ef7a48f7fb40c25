"""The probe of one rank: what PyTorch's hooks show of each step, on its way into the rank's trace."""

import atexit
import contextlib
import multiprocessing
import os
import threading
import time

import torch
import torch.distributed as dist

from lockstep_probe import collectives, description, hashing, heartbeat, held, loader, model, operations, ownership, patches, random_state, trace_file
from lockstep_probe.calls import Calls
from lockstep_probe.gradients import Gradients
from lockstep_probe.guard import guarded
from lockstep_probe.hooks import Attached, where_values
from lockstep_probe.led import Led, Rows
from lockstep_probe.of_rows import OfRows
from lockstep_probe.ownership import say
from lockstep_probe.parameters import Parameters
from lockstep_probe.recorder import Recorder, hash_in
from lockstep_probe.settings import Values
from lockstep_probe.state import State
from lockstep_probe.step import Step
from lockstep_probe.updates import Updates


def whole_numbers(ids):
    return [int(i) for i in (ids.tolist() if isinstance(ids, torch.Tensor) else ids)]

GRACE_S = 20  # a program's own end after the last step of a short run

# Columns of the record of scores, as lockstep knows them: reward, advantage, group, ratio.
REWARD_COLUMNS = (2000000, 8000000, 9000000, 10000000)


class Probe:
    """See `lockstep_probe.attach`. `current`: the open step; `inside`: does the probe itself run?"""

    is_copy = False  # of a probe, in a process that was forked

    def __init__(self, models, optimizers, settings, *, declare=None, average=None, own=(), first_step=0, tier="lines", rank=None, world_size=None):
        self.settings, self.tier = settings, tier
        self.models, self.optimizers = list(models), list(optimizers)
        self.own, self.declared, self.first_step = tuple(own), dict(declare or {}), first_step
        self.rank, self.world_size = rank, world_size
        self.is_off = not settings.on
        if settings.stop:
            settings.steps = settings.snapshots = tuple(range(first_step, first_step + settings.stop + 1))
        self.seconds, self.seconds_whole, self.notes = 0.0, 0.0, []
        self.current, self.steps_done, self.number = None, 0, first_step - 1
        self.process, self.inside = os.getpid(), False
        self.thread = self.ended = None  # the thread that trains; the exception, or status, with which the run has ended
        self.claimed = False  # is the trace its own?
        self.prepared = self.finished = self.closed = self._failed = False
        self.autocast, self.saw_forward = None, False  # as the first step shows it
        self.metrics = set()
        self._weights = None  # records of the parameters after the last step
        self._unwritten = []  # steps of which a GPU has not given all yet: batches, and the writer's arguments
        self.writer = self._pulse = self._initial = None
        self._wrappers, self._wrapped, self.wrapped_anew = [], [], False
        self.asks = tier == "lines"  # is step() called after updates? until a step has gone by without
        self._root_of = None  # the step, and its backward passes, when a backward() was called
        self._told_rows = False  # are sample ids given by rows()? else a DataLoader's are taken
        self.generated = set()  # steps for which the program has drawn samples from its model
        self.few_digits = {}  # of a run in float64: names of gradients that have the digits of float32 alone, by step
        self.saw = {"samples": False, "loss": False, "row_losses": False}
        self._lock = threading.RLock()
        if self.is_off:
            return
        self.open_heartbeat()
        self.parameters, self.gradients, self.calls, self.state = Parameters(self), Gradients(self), Calls(self), State(self, average)
        self.of_rows = OfRows(self)
        self.led, self.loaders = Led(self), Rows(self) if settings.steps or settings.led_by else None
        patches.watch(self)
        ownership.at_end(self.finish)
        loader.install(self.loaders)
        self._handles = [handle for each in self.models for handle in self._before_forward(each)]
        self._search = torch.nn.modules.module.register_module_forward_pre_hook(where_values(self._first_forward))
        self.updates = Updates(self)
        if operations.log is not None:
            operations.log.follow(self)

    @property
    def probe(self):
        return self  # as parts of it say

    def find_rank(self):
        """Who this rank is, as far as it is known."""
        together = dist.is_available() and dist.is_initialized()
        if self.rank is None and (together or "RANK" in os.environ):
            self.rank = dist.get_rank() if together else int(os.environ["RANK"])
        if self.world_size is None and (together or "WORLD_SIZE" in os.environ):
            self.world_size = dist.get_world_size() if together else int(os.environ["WORLD_SIZE"])

    def open_heartbeat(self):
        """As early as the rank is known: one that hangs before its first step is seen too. Processes of multiprocessing are told theirs later."""
        self.find_rank()
        if self.settings.heartbeat and self._pulse is None and (self.rank is not None or self.prepared or multiprocessing.parent_process() is None):
            self._pulse = heartbeat.open(self.settings.heartbeat, self.rank or 0, self.world_size or 1)
            self._pulse.step(max(self.number + 1, 0), "load")

    # What the trainer calls.

    @guarded
    def rows(self, ids, inputs=None, labels=None, rewards=None, advantages=None, groups=None, ratios=None):
        """Sample ids of this rank's rows of the next forward pass, in their order; with accumulation once for each micro-step.

        `inputs`, `labels`: what the rows hold, [rows, ...]; traces keep a hash of each row. `rewards` and `advantages`
        as this rank uses them, numbers of `groups`, and `ratios`, exp(logp - logp_old): [rows] each.
        """
        step = self.open(begins=True)
        if not self._told_rows:  # called after the first forward pass, of which a DataLoader's ids were taken
            self._told_rows, step.ids = True, []
        ids = whole_numbers(ids)
        step.ids += ids
        self.saw["samples"] = True
        given = [None if each is None else hashing.plain(torch.as_tensor(each)) for each in (inputs, labels)]
        fits = [each is None or (each.dim() > 0 and each.shape[0] == len(ids)) for each in given]
        for each in (each for each, fit in zip(given, fits) if not fit):
            self._note(f"rows: inputs or labels of shape {list(each.shape)} for {len(ids)} ids are left out", once="rows")
        step.holds(self.recorder, ids, *(each if fit else None for each, fit in zip(given, fits)))
        of_rows = (hashing.plain(torch.as_tensor(each)).reshape(-1).double() if each is not None else None
                   for each in (rewards, advantages, groups, ratios))  # fmt: skip
        scored = [(column, each) for column, each in zip(REWARD_COLUMNS, of_rows) if each is not None]
        if any(len(each) != len(ids) for _, each in scored):
            self._note(f"rows: rewards, advantages, groups or ratios for {len(ids)} ids are left out", once="rewards")
        elif scored and step.records:
            columns, values = zip(*scored)
            step.scored.append((ids, columns, torch.stack(values, 1)))

    @guarded
    def step(self, loss=None, row_losses=None, counts=None):
        """Once for each update, after it: this rank's loss; with `row_losses` [rows] those of its rows, and `counts` what each counts."""
        step = self.current
        if step is None:
            self._note("step() was called before any forward or backward pass of the model: nothing is recorded of it", once="step")
            return
        step.asked = not self.is_held_back()
        if step.due:
            self.record_state(step)
        if loss is not None:
            step.losses.append(self.recorder.number(loss))
        if row_losses is not None:
            rows = hashing.plain(row_losses).reshape(-1)
            if len(rows) == len(step.ids):
                if counts is not None:
                    counts = hashing.plain(torch.as_tensor(counts)).reshape(-1).to(torch.int64)
                step.row_losses = [(step.ids, rows, counts)]
                self.saw["row_losses"] = True
            else:
                self._note(f"step: {len(rows)} row losses for {len(step.ids)} sample ids are left out", once="row_losses")
        if not step.due and self.is_over(step):
            self.end_after(step.number)

    def replay(self, *_, **__):
        """Of earlier versions: programs that call it go on."""
        self._note("replay() records nothing any more: `lockstep check` leads the program itself", once="replay")

    @guarded
    def term(self, name, value, weight=1.0):
        """A named part of the loss: loss = sum of weight * value."""
        step = self.current
        if step is None or not self.asks or step.asked or not self.is_over(step):  # else of the update that step() is to be called after
            step = self.open(begins=True)
        step.terms[str(name).replace("/", ".")] = (self.recorder.number(value), float(weight))

    @guarded
    def metric(self, name, value, ids=None):
        """A metric after the last update: a number, or [rows] of held-out samples with their `ids`."""
        step = self.current or self.open()
        if ids is not None:
            tensor = torch.as_tensor(value)
            tensor = tensor if tensor.is_floating_point() else tensor.to(torch.float64)
            step.last.append(self.recorder.tensor("evaluation", name, tensor, ids=whole_numbers(ids), values=True))
        else:
            step.last.append(self.recorder.scalar("evaluation", name, self.recorder.number(value)))
        self.metrics.add(str(name))

    # The step.

    def open(self, begins=False):
        """The step that is open, or the next one. `begins`: the trainer begins a batch; a step that it has called over, and not updated, is left out."""
        with self._lock:
            step = self.current
            if begins:
                self._leave_out()
            if step is not None and not self.is_over(step):
                return step
            if step is not None:
                self.write()
            if not self.prepared:
                self._prepare()
            return self._begin(step, begins)

    def _leave_out(self):
        """Of a step that the trainer has called over: the update that it has not made, or that another rank has."""
        step = self.current
        if step is not None and step.asked and step.backwards and not step.stepped and self.optimizers:
            before = self._weights and list(map(hash_in, self._weights))
            self.updates.made_elsewhere |= before is not None and before != self.state.hashes()
            for optimizer in list(self.optimizers):
                self.updates.leave_out(optimizer, step.rates.get(id(optimizer)))

    def _begin(self, before, begins):
        """The step after the step `before`, which has been written just now, or None. `begins`: is its first forward pass still to be made?"""
        self.end_after(self.number)
        self.number += 1
        keeps, records = self.values.keeps(self.number), self.values.records(self.number)
        step = self.current = Step(self.number, keeps, records, self.calls.next_ledger())
        self.is_copy = False
        self.thread, self.ended, self._failed = threading.get_ident(), None, False  # what was raised before has been caught
        for each in self.parameters:
            each.clear()
        self.beat("forward")
        if step.records:
            after = before.generators_after if before is not None else None
            step.generators = after or random_state.states(self.recorder.hashes.xxh3)
        else:
            self._weights = None
        if self.wrapped_anew:
            self.find_wrappers()
        self.parameters.check()
        self.state.held = held.Held(self) if self.loaders else None
        self.led.lay_in(self.number, begins)
        if keeps:
            step.first += self.state.before_step()
        if self.settings.stop:
            self.loaders.begin(step)
            if step.number == self.settings.steps[-1]:
                self.write()
                self.end_after(step.number)
        return step

    def is_over(self, step):
        return bool(step.stepped) and all(any(o is s for s in step.stepped) for o in self.optimizers)

    def is_held_back(self, parameter=None):
        """Are gradients (of this parameter) left as they are, by no_sync?"""
        return any(not w.require_backward_grad_sync and (parameter is None or id(parameter) in held) for w, held in self._wrapped)

    def _prepare(self):
        """Before the first step: who this rank is, which parameters there are, and the trace's file."""
        self.prepared, self._began = True, time.perf_counter()
        self.find_rank()
        self.rank, self.world_size = self.rank or 0, self.world_size or 1
        self.claim()
        self.open_heartbeat()
        self.updates.leave_out_others()
        if not self.models:
            self.models = [model.bare(m) for m in model.owners(self.parameters.of_optimizers())]
            self._handles += [handle for each in self.models for handle in self._before_forward(each)]
        hashes = hashing.load()
        self.recorder = Recorder(hashes, self.settings.level, self.rank == 0)
        self.parameters.find()
        patches.watch_pipelines()
        self.find_wrappers()
        self.values = Values(self.settings, self.state.costs())
        for text in description.unseen(self):
            self._note(text)
        self.writer = trace_file.Writer(os.path.join(self.settings.out, f"rank-{self.rank}.trace"), hashes)
        if self.values.left_out:
            self._note(self.values.said())
        elif self.rank == 0:
            say(f"records into {self.settings.out} at level {self.settings.level}; {self.values.said()}")
        if dist.is_available() and dist.is_initialized():
            self.calls.listen()
        self._initial = self.state.after_update(self.values.keeps(0), False)  # until the first step is written
        self._weights = [record for _, record in zip(self.parameters, self._initial)]
        description.write(self, done=False)
        self._seconds_of_setup = time.perf_counter() - self._began

    def find_wrappers(self):
        self._wrappers, self.wrapped_anew = [w for w in map(model.find_wrapper, self.models) if w is not None], False
        self._wrapped = [(w, set(map(id, w.parameters()))) for w in self._wrappers]
        self.by_hand = self.world_size > 1 and not self._wrappers and not any(model.fsdp_groups(m) for m in self.models)

    @contextlib.contextmanager
    def paused(self):
        """For passes of the model that train nothing."""
        was, self.closed = self.closed, True
        try:
            yield
        finally:
            self.closed = was

    def claim(self):
        """Raises ownership.Taken if another process, or an earlier training of this one, has the rank's trace."""
        said = ownership.claim(self.settings.out, self.rank)
        self.claimed = True
        if said:
            say(said)

    def stand_aside(self, taken):
        say(f"{taken}; what is trained here is not recorded, which the recording will say. A recording of its own: lockstep trace with another --out")
        self.detach()

    def forked(self):
        """In a child of this process: one that has not begun may record there, and one that has begun does not."""
        if not self.prepared and not self.is_off:
            self.process, self.is_copy = os.getpid(), True

    def record_state(self, step):
        step.due = step.late = False
        records = self.state.after_update(step.keeps, step.keeps or self.settings.level == "full")
        self._weights = [record for _, record in zip(self.parameters, records)]
        step.state = records
        if self.settings.led_by:
            self.led.lay_in(step.number + 1, ends=True)
            self._weights = None

    def write(self, kind=trace_file.STEP):
        step, self.current = self.current, None
        if operations.log is not None and step.number == operations.log.step:
            operations.log.write(self.settings.out, self.rank)
        self.steps_done += 1
        self.seconds_whole = time.perf_counter() - self._began
        self.begin_trace(step)
        if not step.records:
            return
        if step.due or step.late:
            self.asks &= not step.due
            self.record_state(step)
        self.saw["loss"] |= bool(step.losses or step.roots or step.others_roots)
        records = step.record(self.recorder) + self.calls.records(step.ledger)
        self._unwritten.append((self.recorder.fetch(), (step.number, records + step.first + step.state + step.last, kind)))
        self._write_what_is_there()

    def _write_what_is_there(self, whole=False):
        """A GPU that still computes is not waited for, but at the end; until the next step only."""
        while self._unwritten:
            batches, arguments = self._unwritten[0]
            if not whole and len(self._unwritten) < 3 and not all(batch.is_there() for batch in batches):
                return
            del self._unwritten[0]
            self.writer.step(*arguments)

    def begin_trace(self, step):
        """The header, and what training began with, in front of the first step; or alone, where there will be none."""
        if self._initial is not None:
            said, initial, self._initial = description.declared(self, step), self._initial, None
            self.writer.header(description.header(self, said))
            self.writer.step(step.number - 1, initial)

    # Hooks; those of gradients and optimizers are their parts'.

    def _before_forward(self, module):
        """Lightning calls `training_step` in one process, and the module itself only under DistributedDataParallel."""
        called = [module, *module.children()] if hasattr(module, "training_step") else [module]
        return [Attached(each.register_forward_pre_hook, self._forward_begins, each, prepend=True, with_kwargs=True) for each in called]

    def _first_forward(self, module, inputs):
        """Of whatever module is called first with one of the optimizer's parameters."""
        if self.inside:
            return
        if self.is_off or self.prepared:
            self._search.remove()
            return
        if any(each in self.models for each in module.modules()):
            return  # it has a hook of its own
        if self.models and any(each is module for m in self.models for each in m.modules()):
            # Its parts are called, and not the model.
            self._handles += [handle for m in self.models for each in m.children() for handle in self._before_forward(each)]
            self._search.remove()
            return self._forward_begins(module, inputs, {})
        wanted = set(map(id, self.parameters.of_optimizers()))
        if any(id(p) in wanted for p in module.parameters()):
            self._forward_begins(module, inputs, {})
        elif module.training and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()) and not model.owners(self.parameters.of_optimizers()):
            # No module has what the optimizers update, such as flat pieces of a model's parameters: the first that trains is that model.
            self.models = [model.bare(module)]
            self._handles += self._before_forward(self.models[0])
            self._search.remove()
            self._forward_begins(module, inputs, {})

    def on_training_step(self, module):
        """Before a framework calls it."""
        if not self.is_off and not self.inside and any(module is each for each in self.models):
            self._on_forward(((), {}))

    def _forward_begins(self, module, args, kwargs):
        # A compiled model's steps begin with rows() or with the backward pass: hooks would be compiled into its graph.
        if module.training and torch.is_grad_enabled() and not self.inside:
            self._on_forward((args, kwargs))

    @guarded
    def _on_forward(self, inputs):
        step = self.open(begins=True)
        self.calls.before_forward(step.ledger)
        if not self._told_rows:
            found = loader.ids_of(inputs, self.world_size, step.batches)
            step.ids += found
            if found:
                self.of_rows.hold(step, step.batches[-1])
            self.saw["samples"] |= bool(step.ids)
        if self.settings.stop:
            self.loaders.enter(step, loader.tensors(inputs))
        elif self.loaders and step.keeps:
            self.loaders.get(step.number, list(loader.tensors(inputs)))
        if step.records:
            step.drawing = torch.get_rng_state()
        self.saw_forward = True
        device = self._device()
        if torch.is_autocast_enabled(device):
            self.on_autocast(device, torch.get_autocast_dtype(device))

    def _device(self):
        return next((p.device.type for p in self.parameters.tensors()), "cpu")

    def on_autocast(self, device, dtype):
        """Around the forward pass, or within it as Accelerate has it."""
        step = self.current
        if self.autocast is None and not self.is_off and step is not None and self._initial is not None and not self.is_over(step):
            if torch.is_grad_enabled() and device == self._device():
                self.autocast = str(dtype).removeprefix("torch.")

    @guarded
    def on_scale(self, scale):
        self.open().scale = scale

    def on_loss(self, loss):
        """What backward() is called on: the loss, where the trainer does not give it."""
        step = self.current
        self._root_of = None
        if not self.is_off and step is not None and not self.inside and not self.is_over(step):
            if operations.log is not None:
                operations.log.root(loss)
            step.roots.append(loss.detach())
            self._root_of = step, step.backwards
            self.of_rows.begin(step, loss)

    def after_loss(self, loss):
        """A backward pass may have begun the step; and one that gave this model no gradient was another's, such as a copy's."""
        step = self.current
        if self.is_off or step is None or self.inside:
            return
        self.of_rows.end()
        if self._root_of is None and step.backwards and not self.is_over(step):
            step.roots.append(loss.detach())
        elif self._root_of == (step, step.backwards) and step.roots and not self.gradients.in_backward:
            step.others_roots.append(step.roots.pop())

    def add_optimizer(self, optimizer):
        """Another one of the training: before it begins, with its model; or one for the same model, such as a second phase's."""
        if any(optimizer is o for o in self.optimizers):
            return
        self.optimizers.append(optimizer)
        self.updates.listen(optimizer)
        if self.prepared:
            self.updates.leave_out_others()
        elif self.models:
            known = {id(p) for m in self.models for p in m.parameters()}
            added = [model.bare(m) for m in model.owners([p for p in model.parameters_of(optimizer) if id(p) not in known])]
            within = {id(inner) for m in added for inner in m.modules()}
            self.models = [m for m in self.models if id(m) not in within] + added
            self._handles += [handle for each in added for handle in self._before_forward(each)]

    def beat(self, doing):
        if self._pulse is not None:
            self._pulse.step(max(self.number, 0), doing)

    # Ends.

    def end_after(self, number):
        """Of a short run the program, after the last of its steps."""
        if self.settings.steps and number >= self.settings.steps[-1] and not self.finished:
            self.finish()
            if threading.current_thread() is not threading.main_thread():
                self.end_by_force()
            last = threading.Timer(GRACE_S, self.end_by_force, [False])
            last.daemon = True
            last.start()
            raise SystemExit(0)

    def end_by_force(self, with_exit_functions=True):
        """Of a program that goes on after the end of a short run: it catches SystemExit, trains in a thread or waits for one."""
        if self.settings.steps and self.finished and self.claimed and self.process == os.getpid():
            say("the program goes on after the last step of a short run: it is ended here")
            self.process = 0
            if with_exit_functions and multiprocessing.parent_process() is None:
                atexit._run_exitfuncs()
            os._exit(0)

    def _note(self, text, once=None):
        if once and any(n == once for n, _ in self.notes):
            return
        self.notes.append((once or text, text))
        if self.rank in (0, None) or not self.prepared or once:
            say(text)

    def give_up(self, error):
        if self.is_off:
            return
        self.is_off = True
        where = self.current.number if self.current is not None else self.number
        what = f"cannot write {self.settings.out}: {error.strerror or error}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        say(f"{what}; nothing is recorded from step {where} on, and training goes on")
        self._ends(f"the probe switched itself off in step {where} ({what}), and training went on")
        with contextlib.suppress(Exception):
            self.begin_trace(self.current or Step(where, False, False, None))
        with contextlib.suppress(Exception):
            if self.writer is not None:
                with contextlib.suppress(Exception):
                    self._write_what_is_there(whole=True)
                self.writer.finish(whole=False)
            if self.claimed and (self.writer is None or not self.writer.steps):
                ownership.give_back(self.settings.out, self.rank)  # rather none than one without a header
            description.write(self, done=False)

    def _ends(self, why):
        """Of a recording that ends before the training does."""
        self.notes.append((why, why))
        self.ended = {"error": why, "of_others": False, "where": "", "at": time.time(), "after": self.number + (self.current is None) - self.first_step}

    def on_exception(self, error, status=None):
        """The program is about to end with it. Said at once: whoever started the ranks may end this one before its own end."""
        if self.finished or (self.is_off and not self.claimed) or self.process != os.getpid():
            return
        end = ownership.end_of(error, status)
        if end is None:
            return
        self._failed = True
        step = self.current
        whole = self.number + 1 - self.first_step - (step is not None and not self.is_over(step))
        self.ended = {**end, "after": whole}
        with contextlib.suppress(Exception):
            if self.prepared:
                description.write(self, done=False)
            elif not self.is_copy:
                self.find_rank()
                ownership.write_end_alone(self.settings.out, self.rank or 0, error)

    def _let_go(self):
        self.updates.let_go()
        for handle in self._handles + [h for w in self.parameters for h in w.handles]:
            handle.remove()

    def detach(self):
        """Another probe takes its place, or none."""
        self.is_off = True
        ownership.not_at_end(self.finish)
        self._let_go()

    def withdraw(self):
        """What was recorded so far makes room for what the program asks for by its own lines."""
        collectives.leave(self.calls)
        self.detach()
        self.writer.finish(whole=False)
        self.claimed = False
        ownership.give_back(self.settings.out, self.rank)
        kinds = ", ".join(sorted({type(o).__name__ for o in self.optimizers}))
        ownership.unrecorded.add((self.settings.out, self.rank), steps=self.steps_done + (self.current is not None),
                                 why=f"another model ({kinds}) that was trained before attach()")  # fmt: skip

    @guarded
    def finish(self):
        """Writes what is left. At the end of the process by itself."""
        if self.finished:
            return
        self.finished = True
        ownership.not_at_end(self.finish)
        if not self.prepared:
            if not self.is_copy and not self.ended:
                say("the model was never trained: nothing is recorded")
            self.is_off = True
            return
        error = ownership.in_flight()
        if error is not None and self.ended is None and multiprocessing.parent_process() is not None:
            self.on_exception(error)
        self._leave_out()
        if self.current is not None:
            over = self.is_over(self.current)
            if over or self._failed:
                if not over:
                    self.gradients.of_step(self.current)
                self.write(trace_file.FAILED_STEP if self._failed and not over else trace_file.STEP)
        whole = self._initial is None and not self._failed
        if self._initial is not None:
            if self.ended is None:
                say("no optimizer made an update on this rank: nothing is recorded of its steps; attach() and step() tell where they end")
                self._ends("no optimizer made an update on this rank: its recording has no step")
            self.begin_trace(self.current or Step(self.number, False, False, None))
        self.current = None
        self._write_what_is_there(whole=True)
        self.writer.finish(whole)
        if self.loaders is not None:
            self.loaders.write()
        collectives.leave(self.calls)
        self._let_go()
        if self.rank == 0 and self.steps_done:
            self._say_what_it_cost()
        description.write(self, done=whole)
        if self._pulse is not None:
            self._pulse.close()
        self.is_off = True

    def _say_what_it_cost(self):
        own, probes = max(self.seconds_whole - self.seconds, 1e-9), max(self.seconds - self._seconds_of_setup, 0.0)
        say(f"{self.steps_done} steps at level {self.settings.level} in {self.settings.out}: {self.writer.end / 1e6:.1f} MB a rank; "
            f"{1000 * probes / self.steps_done:.3g} ms a step beside the training's {1000 * own / self.steps_done:.3g} ms "
            f"({100 * probes / own:.1f} %)")  # fmt: skip
