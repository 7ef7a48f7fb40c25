"""What the tests of the probe share: a case, how its ranks run, what compare says."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import typing

import launch
from lockstep_probe import zero

QUIET = {"identical", "within_envelope", "inconclusive"}


@dataclasses.dataclass
class Case:
    """`check(bench)` raises Problem, or returns what there is to say of a case that passes."""

    name: str
    check: typing.Callable


class Problem(Exception):
    """What was expected, and what was found."""


class Bench:
    """A folder for one case, and the program."""

    def __init__(self, lockstep, folder):
        self.lockstep, self.folder = lockstep, pathlib.Path(folder)

    def path(self, name):
        return str(self.folder / name)

    def train(self, kind, world, name, **options):
        """Trains on `world` ranks; the traces lie in the folder `name`. Returns that folder and what each rank said."""

        def program(run):
            kind(run, **options).train()

        return self.path(name), self.run(program, world, name)

    def run(self, program, world, name):
        return launch.run(program, world, self.path(name))

    def script(self, text, world, name, **variables):
        """A program's text on ranks that are armed as a start of Python arms them; its folder of traces, and what the ranks said."""
        traces = self.path(f"{name}/traces")

        def program(rank):
            with environment(**{"LOCKSTEP_TRACE": traces, "RANK": str(rank.rank), "WORLD_SIZE": str(world), **variables}):
                zero.arm()
                with contextlib.suppress(SystemExit):
                    exec(compile(text, "train.py", "exec"), {})  # noqa: S102
                    need("LOCKSTEP_STEPS" not in variables, "the program came to its own end")

        return traces, "".join(self.run(program, world, name))

    def compare(self, a, b):
        done = subprocess.run([self.lockstep, "compare", a, b, "--json"], capture_output=True, text=True, check=False)
        try:
            return json.loads(done.stdout)
        except ValueError:
            said = (done.stderr + done.stdout).strip()
            return {"verdict": "failed", "sentence": said, "first_divergence": None, "cause": None}


def need(condition, text):
    if not condition:
        raise Problem(text)


def code_of(found):
    return found["cause"]["code"] if found["cause"] else ""


@contextlib.contextmanager
def environment(**values):
    """Variables of the process; those that are None are taken away."""
    before = {name: os.environ.get(name) for name in values}

    def put(entries):
        for name, value in entries.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(values)
    try:
        yield
    finally:
        put(before)
