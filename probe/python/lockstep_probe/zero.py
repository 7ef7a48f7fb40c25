"""The probe without a line in the trainer: attached to the first optimizer that the process makes."""

import atexit
import functools
import importlib.abc
import importlib.machinery
import os
import sys

_AFTER = "torch"


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls `then` once the module has been imported."""

    def __init__(self, name, then):
        self._name, self._then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        load, then = spec.loader.exec_module, self._then

        def exec_module(module):
            load(module)
            then()

        spec.loader.exec_module = exec_module
        return spec


def arm():
    """In the startup of a process that `lockstep trace` has started: waits for PyTorch. Costs nothing in a process that does not import it."""
    if not os.environ.get("LOCKSTEP_TRACE"):
        return
    _watch_end()
    if _AFTER in sys.modules:
        _install()
    else:
        sys.meta_path.insert(0, _AfterImport(_AFTER, _install))


def _watch_end():
    """An exception of a rank that has not come to a step."""
    if os.environ.get("LOCKSTEP_STEPS"):
        atexit.register(_without_optimizer)
    before = sys.excepthook

    def failed(kind, error, trace):
        if "RANK" in os.environ and "torch" in sys.modules and issubclass(kind, Exception):
            from lockstep_probe import ownership

            ownership.write_end_alone(os.environ["LOCKSTEP_TRACE"], os.environ["RANK"], error)
        before(kind, error, trace)

    sys.excepthook = failed


def _without_optimizer():
    """Of a rank, at the end of a short run."""
    if "RANK" in os.environ and "torch" in sys.modules and not getattr(sys.modules.get("lockstep_probe.patches"), "_watched", None):
        sys.stderr.write(f"lockstep_probe (rank {os.environ['RANK']}): no optimizer was made: no step is seen, none is recorded, and none can be led\n")


def _once_there(name, then):
    """Of a module, imported or to be imported."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, lambda: then(sys.modules[name])))


def _install():
    from torch.optim import Optimizer

    if os.environ.get("LOCKSTEP_STEPS"):
        from lockstep_probe import generation

        generation.by_row()
        _once_there("transformers.generation.utils", generation.count)
    if any(os.environ.get(f"LOCKSTEP_{name}") for name in ("DROPOUT", "PRECISION", "NORM_PARTS")):
        _change_arithmetic()
    init = Optimizer.__init__

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if "lockstep_probe.float64" in sys.modules and sys.modules["lockstep_probe.float64"].on:
            sys.modules["lockstep_probe.float64"].widen_parameters(self)
        if "torch.nn.parallel" in sys.modules:
            _attach(self)

    Optimizer.__init__ = made


def _change_arithmetic():
    from lockstep_probe import float64, patches
    from lockstep_probe.guard import say

    if os.environ.get("LOCKSTEP_DROPOUT") == "off":
        float64.no_dropout()
    if int(os.environ.get("LOCKSTEP_NORM_PARTS") or 1) > 1:
        float64.norm_in_parts(int(os.environ["LOCKSTEP_NORM_PARTS"]))
    precision = os.environ.get("LOCKSTEP_PRECISION", "")
    if precision == "float64":
        float64.switch_on(patches.are_inside)
        _once_there("torch.distributed.fsdp._fully_shard._fsdp_api", float64.no_policy)
    elif precision:
        say(f"precision {precision!r}; known: float64; the program computes in its own")


def _attach(optimizer):
    try:
        _attach_to(optimizer)
    except Exception as error:  # noqa: BLE001  a probe must not stop a trainer
        sys.stderr.write(f"lockstep_probe: {type(error).__name__}: {error}; nothing is recorded, and training goes on\n")


def _attach_to(optimizer):
    from lockstep_probe import model, patches, settings
    from lockstep_probe.guard import say
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
        say(f"{error}; nothing is recorded, and training goes on")
        return
    if asked.on:
        models = [model.bare(m) for m in model.owners([p for group in optimizer.param_groups for p in group["params"]])]
        _keep.append(Probe(models, [optimizer], asked, tier="zero"))


_keep = []
