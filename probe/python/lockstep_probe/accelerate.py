"""One line for loops with accelerate: accelerator = lockstep_probe.accelerate.watch(Accelerator())"""

from lockstep_probe import of_rows


def watch(accelerator):
    """The same accelerator. Raises TypeError for anything else."""
    if not isinstance(accelerator, of_rows.framework("accelerate").Accelerator):
        kind = type(accelerator)
        found = f"{kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"lockstep_probe.accelerate.watch takes an Accelerator; found {found}")
    of_rows.ask()
    return accelerator
