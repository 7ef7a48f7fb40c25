"""Tools that look at one process: which faults act there at all, and in which of the twins."""

import copy

from faults import ACCUMULATED, ENERGY, FAULTS
from twin import Fault, Trainer

#: what a fault overrides that only the energy trainer has
OF_ENERGY = {"gathered", "encoded", "scored", "temperature"}
#: what belongs to the user where a tool brings the loop: the model, its loss, the optimizer
OF_THE_MODEL = OF_ENERGY | {
    "statistics", "kept_statistics", "count", "part_weight", "loss", "optimizer", "initial", "masked", "mask_key",
}  # fmt: skip


def overrides(fault):
    return {name for name in vars(type(fault)) if not name.startswith("_") and callable(getattr(Fault, name, None))}


def trained(settings, fault=None):
    trainer = Trainer(settings.but(world=1), 0, fault)
    trainer.train()
    return [trainer.losses] + [p.detach().tolist() for p in trainer.model.parameters()]


_clean = {}


def acts_alone(fault, settings):
    """Whether one process with the fault trains anything else than one without, to the last bit."""
    if settings not in _clean:
        _clean[settings] = repr(trained(settings))
    return repr(trained(settings, fault)) != _clean[settings]


def settings_for_accumulation(fault):
    """The twin whose micro-steps may be compared with one batch: candidates of a batch cannot be split, tokens can."""
    if fault.settings == ENERGY:
        return None if overrides(fault) & OF_ENERGY else ACCUMULATED
    return fault.settings.but(accumulation=3)


def from_the_start(name):
    """The fault, acting at the one or two steps that a check of one step trains; nothing wrong for `none`."""
    fault = copy.copy(FAULTS.get(name, Fault()))
    fault.first = 0
    return fault
