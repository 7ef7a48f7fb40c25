"""python -m lockstep_probe.wandb LOG FOLDER: what lockstep found as offline runs of W&B, by its own library.

`wandb sync` sends them."""

from __future__ import annotations

import json
import os
import sys


def write(log: str, folder: str) -> None:
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    with open(log) as file:
        runs = json.load(file)
    for run in runs:
        with wandb.init(project="lockstep", name=run["name"], dir=folder, mode="offline", reinit=True) as written:
            for step, values in run["steps"].items():
                written.log({tag: float(value) for tag, value in values.items()}, step=int(step))
            written.summary.update(run["texts"])


if __name__ == "__main__":
    try:
        write(*sys.argv[1:])
    except ImportError as error:
        sys.exit(f"lockstep: {error}")
