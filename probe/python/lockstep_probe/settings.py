"""What the probe is asked to record: by environment variables that `lockstep trace` sets, or by `attach`'s arguments."""

import dataclasses
import os

LEVELS = ("off", "hash", "stats", "full")
FULL_BYTES = 64 << 20  # values of the first steps up to this much, on each rank
AUTO_STEPS = (0, 1, 10, 100, 1000, 10_000, 100_000)


@dataclasses.dataclass
class Settings:
    """`snapshots`: steps that keep all values, or "auto": the first as far as 64 MB reach, and steps 0, 1, 10, 100, … of small models.

    `every`: other steps are recorded if their number is a multiple of it.
    """

    out: str = ""
    against: str = ""
    level: str = "hash"
    snapshots: tuple | str = "auto"
    every: int = 1
    heartbeat: str = ""

    @property
    def on(self):
        return bool(self.out) and self.level != "off"

    def keeps(self, step, step_bytes):
        """Are all values of a step kept? `step_bytes`: what that takes on a rank that holds the whole model."""
        if self.level == "full":
            return True
        if self.snapshots != "auto":
            return step in self.snapshots
        return step == 0 or (step + 1) * step_bytes <= FULL_BYTES or (step in AUTO_STEPS and step_bytes <= FULL_BYTES)

    def records(self, step, step_bytes):
        return step % self.every == 0 or self.keeps(step, step_bytes)


def _steps(text):
    if text in ("auto", ""):
        return "auto"
    if text == "none":
        return ()
    return tuple(sorted({int(word) for word in text.split(",")}))


def read(out=None, against=None, level=None, snapshots=None, every=None):
    """Arguments first, then the environment. Raises ValueError that names what is wrong."""
    env = os.environ
    settings = Settings(
        out=os.path.abspath(out) if out else env.get("LOCKSTEP_TRACE", ""),
        against=os.path.abspath(against) if against else env.get("LOCKSTEP_AGAINST", ""),
        level=level or env.get("LOCKSTEP_LEVEL", "") or "hash",
        heartbeat=env.get("LOCKSTEP_HEARTBEAT", ""),
    )
    if settings.level not in LEVELS:
        raise ValueError(f"level {settings.level!r}; known: {', '.join(LEVELS)}")
    try:
        if snapshots is None:
            settings.snapshots = _steps(env.get("LOCKSTEP_SNAPSHOTS", ""))
        else:
            settings.snapshots = _steps(snapshots) if isinstance(snapshots, str) else tuple(sorted({int(s) for s in snapshots}))
    except ValueError:
        asked = snapshots if snapshots is not None else env.get("LOCKSTEP_SNAPSHOTS")
        raise ValueError(f"snapshots {asked!r}; steps such as 0,10,100, or auto, or none") from None
    try:
        settings.every = int(every or env.get("LOCKSTEP_EVERY", "") or 1)
    except ValueError:
        raise ValueError(f"every {every or env.get('LOCKSTEP_EVERY')!r}; a whole number of steps") from None
    if settings.every < 1:
        raise ValueError(f"every {settings.every}; 1 or more")
    return settings
