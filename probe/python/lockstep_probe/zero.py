"""The probe without a line in the trainer: attached to the first optimizer that the process makes."""

import atexit
import functools
import importlib.machinery
import os
import sys
import types

from lockstep_probe import ownership


def once_there(name, then):
    """Of a module, imported or to be imported."""
    if name in sys.modules:
        then(sys.modules[name])
        return

    def find_spec(asked, path=None, _target=None):
        if asked != name:
            return None
        sys.meta_path.remove(finder)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (load(module), then(module))
        return spec

    finder = types.SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)


def arm():
    """In the startup of a process that `lockstep trace` has started: waits for PyTorch. Costs little in a process that does not import it."""
    if os.environ.get("LOCKSTEP_TRACE"):
        if os.environ.get("LOCKSTEP_STEPS"):
            atexit.register(_without_optimizer)
        ownership.on_failure(_failed)
        once_there("torch", _install)


def _failed(error):
    """An exception of a rank that has not come to a step."""
    if "RANK" in os.environ and "torch" in sys.modules and isinstance(error, Exception):
        ownership.write_end_alone(os.environ["LOCKSTEP_TRACE"], os.environ["RANK"], error)


def _without_optimizer():
    """Of a rank, at the end of a short run."""
    if "RANK" in os.environ and "torch" in sys.modules and not getattr(sys.modules.get("lockstep_probe.patches"), "_watched", None):
        ownership.say("no optimizer was made: no step is seen, none is recorded, and none can be led")


def _install(_torch):
    from torch.optim import Optimizer

    if os.environ.get("LOCKSTEP_STEPS"):
        from lockstep_probe import generation

        generation.by_row()
        once_there("transformers.generation.utils", generation.count)
    if any(os.environ.get(f"LOCKSTEP_{name}") for name in ("DROPOUT", "PRECISION", "NORM_PARTS")):
        _change_arithmetic()
    if os.environ.get("LOCKSTEP_GATHER") == "gradients":
        once_there("torch.nn.parallel", lambda _: importlib.import_module("lockstep_probe.otherwise").gather_with_gradients())
    if os.environ.get("LOCKSTEP_SCHEDULE") == "once":
        once_there("torch.optim.lr_scheduler", lambda _: importlib.import_module("lockstep_probe.otherwise").schedule_once())
    for name in ("lightning.pytorch", "pytorch_lightning"):
        once_there(name + ".strategies.strategy", _watch_training_step)
    init = Optimizer.__init__

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if "lockstep_probe.float64" in sys.modules and sys.modules["lockstep_probe.float64"].on:
            sys.modules["lockstep_probe.float64"].widen_parameters(self)
        if "torch.nn.parallel" in sys.modules:
            try:
                _attach(self)
            except Exception as error:  # noqa: BLE001  a probe must not stop a trainer
                ownership.say(f"{type(error).__name__}: {error}; nothing is recorded, and training goes on")

    Optimizer.__init__ = made


def _watch_training_step(strategies):
    """Lightning's, in which a module may change its buffers before it calls itself; under DistributedDataParallel that call is around the whole."""
    step = strategies.Strategy.training_step

    @functools.wraps(step)
    def training_step(self, *args, **kwargs):
        if "lockstep_probe.patches" in sys.modules:
            for probe in sys.modules["lockstep_probe.patches"].probes():
                probe.on_training_step(self.lightning_module)
        return step(self, *args, **kwargs)

    strategies.Strategy.training_step = training_step


def _change_arithmetic():
    from lockstep_probe import float64, patches

    if os.environ.get("LOCKSTEP_DROPOUT") == "off":
        float64.no_dropout()
    if int(os.environ.get("LOCKSTEP_NORM_PARTS") or 1) > 1:
        float64.norm_in_parts(int(os.environ["LOCKSTEP_NORM_PARTS"]))
    precision = os.environ.get("LOCKSTEP_PRECISION", "")
    if precision == "float64":
        float64.switch_on(patches.are_inside)
        once_there("torch.distributed.fsdp._fully_shard._fsdp_api", float64.no_policy)
    elif precision:
        ownership.say(f"precision {precision!r}; known: float64; the program computes in its own")


def _attach(optimizer):
    from lockstep_probe import model, patches, settings
    from lockstep_probe.probe import Probe

    live = [probe for probe in patches.probes() if not probe.is_off]
    if live and live[0].tier == "zero" and live[0].is_copy:
        live.pop(0).detach()  # a forked process with an optimizer of its own does not train its parent's
    if any(probe.tier != "zero" for probe in live):
        return
    if live:
        if not live[0].prepared:
            live[0].add_optimizer(optimizer)
        return
    if any(probe.prepared and probe.process == os.getpid() for probe in _keep):
        return  # one recording a process: what comes after it is counted
    try:
        asked = settings.read()
    except ValueError as error:
        ownership.say(f"{error}; nothing is recorded, and training goes on")
        return
    if asked.on:
        models = [model.bare(m) for m in model.owners(model.parameters_of(optimizer))]
        _keep.append(Probe(models, [optimizer], asked, tier="zero"))


_keep = []
