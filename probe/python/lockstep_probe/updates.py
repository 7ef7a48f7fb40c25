"""Updates of the optimizers: what they take, and when a step's last one has been made or left out."""

from lockstep_probe import float64, model
from lockstep_probe.guard import guarded
from lockstep_probe.hooks import Attached


class Updates:
    def __init__(self, probe):
        self.probe, self._counts, self._handles, self._is_none = probe, {}, {}, False
        self.made_elsewhere = False  # does this rank get its parameters from another one, which has made the update?
        self._held = set()  # parameters that an optimizer has updated
        for optimizer in probe.optimizers:
            self.listen(optimizer)

    def listen(self, optimizer):
        self._handles[id(optimizer)] = (Attached(optimizer.register_step_pre_hook, self._before, optimizer),
                                        Attached(optimizer.register_step_post_hook, self._after, optimizer))  # fmt: skip

    def let_go(self):
        for handle in (handle for handles in self._handles.values() for handle in handles):
            handle.remove()

    def knows(self, optimizer):
        return id(optimizer) in self._handles

    def leave_out_others(self):
        """Optimizers that are part of another one: their steps are part of its step. And those in whose place a later one has come."""
        optimizers = self.probe.optimizers
        within = {id(inner) for o in optimizers if (inner := model.inner_optimizer(o)) is not o}
        for number, o in enumerate(optimizers):
            if not self.count(o) or self.probe.prepared:
                own = set(map(id, model.parameters_of(o)))
                others = [later for later in optimizers[number + 1 :] if later is not model.inner_optimizer(o) and o not in vars(later).values()]
                within |= {id(o) for later in others if own <= set(map(id, model.parameters_of(later)))}
        self.probe.optimizers = [o for o in optimizers if id(o) not in within]
        for handle in (handle for key in within & self._handles.keys() for handle in self._handles[key]):
            handle.remove()

    def count(self, optimizer):
        return self._counts.get(id(optimizer), 0)

    def number(self):
        """Of the updates so far, of a resumed run all of them."""
        return self.probe.first_step + max(self._counts.values(), default=0)

    def _before(self, optimizer, args, kwargs):
        """The update's gradients are there; or, where the optimizer takes a closure (as Lightning's does), after it."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        self._is_none = self._moves_nothing(optimizer)
        if self._is_none:
            return None
        if self.probe.is_off or closure is None or type(optimizer).__name__ == "LBFGS":
            self._on_update(optimizer)
            return None

        def computed():
            loss = closure()
            self._on_update(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": computed}

    def _moves_nothing(self, optimizer):
        """An update by which a checkpoint's loader makes the optimizer's state: no backward pass, rates and gradients of zero."""
        step = self.probe.current
        if self.probe.is_off or (step is not None and step.backwards and not self.probe.is_over(step)) or any(float(g["lr"]) for g in optimizer.param_groups):
            return False
        return not any(p.grad is not None and model.held(p.grad).any() for p in model.parameters_of(optimizer))

    @guarded
    def _on_update(self, optimizer):
        probe, step = self.probe, self.probe.current
        done = step is not None and any(optimizer is s for s in step.stepped)
        if done and step.due:
            return  # a second update of the same step: its end shows in the parameters
        if done:
            # Of another optimizer that never steps nothing more is expected.
            probe.optimizers = [o for o in probe.optimizers if any(o is s for s in step.stepped)]
        if done or step is None:
            step = probe.open(begins=type(optimizer).__name__ == "LBFGS")  # which computes within its step
        probe.beat("update")
        if not step.records:
            return
        probe.gradients.settle()
        for watched in probe.parameters:
            if watched.parameter.grad is None and id(watched.parameter) not in step.updated and not watched.by_copy:
                watched.reduced = None  # taken away, such as into a buffer of the program's: the optimizer takes something else
        if probe.world_size > 1:
            probe.gradients.reduced_by_hand(self._taken_by(optimizer))
            probe.gradients.clipped_too_early()
        self._record_rates(optimizer)
        taken = [(watched, p.grad) for p in model.parameters_of(optimizer) if (watched := probe.parameters.of(p)) and p.grad is not None]
        if step.keeps and float64.on is not None:
            probe.few_digits.setdefault(step.number, []).extend(float64.few_digits((watched.name, model.held(gradient)) for watched, gradient in taken))
        with probe.recorder.together():
            step.last += [probe.gradients.record("applied gradients", *each) for each in taken]

    def _taken_by(self, optimizer):
        """What it updates; and, where it updates copies of parameters, these: no optimizer has them."""
        self._held |= set(map(id, self.probe.parameters.of_optimizers() + model.parameters_of(optimizer)))
        copied = [] if self.probe.parameters.pieces else [p for p in self.probe.parameters.tensors() if id(p) not in self._held]
        return model.parameters_of(optimizer) + copied

    def rates(self, optimizer):
        """The first group's rate, and those of other groups that have another, by the group's first parameter."""
        first, found = self.probe.optimizers[0].param_groups[0], {}
        for group in optimizer.param_groups:
            rate, watched = float(group["lr"]), self.probe.parameters.of(group["params"][0]) if group["params"] else None
            if group is first:
                found["learning_rate"] = rate
            elif rate != float(first["lr"]) and watched is not None:
                found[f"learning_rate/{self.probe.parameters.shared_name(watched)}"] = rate
        return found

    def _record_rates(self, optimizer, rates=None):
        rates = self.rates(optimizer) if rates is None else rates
        self.probe.current.first += [self.probe.recorder.scalar("control", name, rate, alike=True) for name, rate in rates.items()]

    @guarded
    def _after(self, optimizer, _args, _kwargs):
        if self._is_none:
            return
        self._counts[id(optimizer)] = self.count(optimizer) + 1
        step = self.probe.current
        if step is not None and not any(optimizer is s for s in step.stepped):
            self._end(optimizer)

    @guarded
    def on_skipped(self, optimizer):
        """Of an update that a GradScaler leaves out."""
        if self.probe.current is not None and any(optimizer is o for o in self.probe.optimizers):
            self.leave_out(optimizer)

    def leave_out(self, optimizer, rates=None):
        """`rates`: those of the last backward pass, where it shows only afterwards, and a schedule may have moved on, that there was no update."""
        self.probe.current.skipped = not self.made_elsewhere
        if self.probe.current.records:
            self._record_rates(optimizer, rates)
        self._end(optimizer)

    def _some_come_from_elsewhere(self):
        """Parameters that train and that no optimizer of this rank has: another rank's update sends them, or a flat copy holds them."""
        own = set(map(id, self.probe.parameters.of_optimizers()))
        return any(w.parameter.requires_grad and id(w.parameter) not in own for w in self.probe.parameters)

    def _end(self, optimizer):
        probe, step = self.probe, self.probe.current
        step.stepped.append(optimizer)
        step.updated |= set(map(id, model.parameters_of(optimizer)))
        if not probe.is_over(step):
            return
        if step.records:
            probe.gradients.of_step(step)
            # What the trainer does between its optimizer's step and step(), such as averaging weights, belongs to this step.
            step.due = probe.asks and not step.asked
            step.late = not probe.asks and self._some_come_from_elsewhere()
            if not step.due and not step.late:
                probe.record_state(step)
                probe.end_after(step.number)
        probe.beat("after update")
