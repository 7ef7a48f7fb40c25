"""What the probe is asked to record: by environment variables that `lockstep trace` sets, or by `attach`'s arguments."""

import dataclasses
import os

LEVELS = ("off", "hash", "stats", "full")
FULL_BYTES = 64 << 20  # all values together, on each rank, unless the user names steps
AUTO_STEPS = (0, 1, 10, 100, 1000, 10_000, 100_000)


@dataclasses.dataclass
class Settings:
    """`snapshots`: steps that keep all values, or "auto": what `Values` makes of it.

    `every`: other steps are recorded if their number is a multiple of it. `steps`: what a short run is for; it ends after the last of them.
    `most_bytes`: what their values may take on a rank; 0: whatever it is.
    `led_by`: the folder of the run that leads this one. `stop`: the program ends when this step, counted from the run's first, would begin; what each
    step up to it begins with is kept with all that a trainer holds (`held`).
    """

    out: str = ""
    level: str = "hash"
    snapshots: "tuple | str" = "auto"
    every: int = 1
    heartbeat: str = ""
    led_by: str = ""
    steps: tuple = ()
    most_bytes: int = 0
    stop: int = 0

    @property
    def on(self):
        return bool(self.out) and self.level != "off"


class Values:
    """Which steps keep values, and of which tensors. `costs`: bytes of a tensor's values in one step, by the tensor's name.

    Without a word of the user's all steps together stay below FULL_BYTES: half of it for the first steps, the rest for steps 10, 100, …; of a
    model of which not one step fits step 0 keeps those of its smallest tensors, in all phases, so that closed forms can be tried on them.
    """

    def __init__(self, settings, costs):
        self._settings, self.step_bytes, self.left_out = settings, sum(costs.values()), []
        self.auto = settings.level != "full" and settings.snapshots == "auto"
        self.first = max(1, FULL_BYTES // 2 // max(self.step_bytes, 1))
        fits = max(0, FULL_BYTES // max(self.step_bytes, 1) - self.first)
        self.later = [s for s in AUTO_STEPS if s >= self.first][:fits]
        self._up_to, spent = {}, 0
        for name in sorted(costs, key=costs.get):
            spent += costs[name]
            self._up_to[name] = spent  # with all that are smaller
            if self.auto and spent > FULL_BYTES:
                self.left_out.append(name)
        self._left_out = set(self.left_out)
        steps, many = settings.steps, settings.most_bytes // max(self.step_bytes, 1)
        self.kept = steps if not settings.most_bytes or many >= len(steps) else steps[:many] if many < 3 else (*steps[: many - 1], steps[-1])
        if self.kept != steps and settings.snapshots == steps:
            settings.snapshots = self.kept

    def keeps(self, step):
        if not self.auto:
            return self._settings.level == "full" or step in self._settings.snapshots
        return step < self.first or step in self.later

    def records(self, step):
        return step % self._settings.every == 0 or self.keeps(step)

    def of(self, name):
        """Are a tensor's values kept, at a step that keeps any?"""
        return name not in self._left_out

    def of_parts(self, name, count):
        """And those of so many micro-steps' parts of its gradient? They take a small part of all."""
        return not self.auto or self._up_to.get(name, 0) * count <= FULL_BYTES

    def said(self):
        """In words: what is kept, and what it takes on a rank that holds the whole model."""
        settings, size = self._settings, f"{self.step_bytes / 1e6:.3g} MB a rank and step"
        if not self.auto:
            steps = "all steps" if settings.level == "full" else f"steps {', '.join(map(str, settings.snapshots))}" if settings.snapshots else ""
            of = f"; those of steps {', '.join(map(str, settings.steps))} do not fit in {settings.most_bytes / 1e6:.3g} MB" if self.kept != settings.steps else ""
            return (f"values of {steps} take up to {size}" if steps else f"no values are kept, {size}" if of else "no values are kept") + of
        if self.left_out:
            named = ", ".join(self.left_out[:-4:-1]) + (f" and {len(self.left_out) - 3} more" if len(self.left_out) > 3 else "")
            kept = sum(cost <= FULL_BYTES for cost in self._up_to.values())
            return (f"step 0 keeps the values of the {kept} smallest of {len(self._up_to)} tensors ({FULL_BYTES >> 20} MB a rank); not those of {named}, "
                    f"which are compared by hashes and norms, and do not lead another run: --snapshots 0 keeps all, {size}")  # fmt: skip
        first, later = "step 0" if self.first == 1 else f"the first {self.first:,} steps", ", ".join(f"{s:,}" for s in self.later)
        most = (self.first + len(self.later)) * self.step_bytes / 1e6
        return f"values of {first}{later and f' and of {later}'} take up to {most:.3g} MB a rank"


def _steps(asked):
    if not isinstance(asked, str):
        return tuple(sorted({int(step) for step in asked}))
    return "auto" if asked in ("auto", "") else () if asked == "none" else _steps(asked.split(","))


def _read(what, asked, made_of, known):
    try:
        return made_of(asked)
    except ValueError:
        raise ValueError(f"{what} {asked!r}; {known}") from None


def read(out=None, level=None, snapshots=None, every=None):
    """Arguments first, then the environment. Raises ValueError that names what is wrong."""
    of = lambda name: os.environ.get(f"LOCKSTEP_{name}", "")  # noqa: E731
    settings = Settings(out=os.path.abspath(out) if out else of("TRACE"), level=level or of("LEVEL") or "hash", heartbeat=of("HEARTBEAT"), led_by=of("LED_BY"))
    if settings.level not in LEVELS:
        raise ValueError(f"level {settings.level!r}; known: {', '.join(LEVELS)}")
    settings.snapshots = _read("snapshots", of("SNAPSHOTS") if snapshots is None else snapshots, _steps, "steps such as 0,10,100, or auto, or none")
    settings.steps = _read("steps", of("STEPS") or "none", lambda asked: tuple(range(int(asked))) if asked.isdigit() else _steps(asked),
                           "how many of the first, or steps such as 0,10,100")  # fmt: skip
    settings.most_bytes, settings.stop = _read("most bytes", of("MOST_BYTES") or 0, int, "a whole number"), int(of("STOP") or 0)
    if settings.steps and settings.snapshots == "auto":
        settings.snapshots = settings.steps
    settings.every = _read("every", every or of("EVERY") or 1, int, "a whole number of steps")
    if settings.every < 1:
        raise ValueError(f"every {settings.every}; 1 or more")
    return settings
