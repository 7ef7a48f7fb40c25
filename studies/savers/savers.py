"""Tries the savers beside this file, with lockstep's suite of programs and with ckpt-chaos, and keeps what came of it.

Prints nothing but progress; studies/savers/results.json is what page.py makes a section of docs/studies.md from.
"""

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from rows import rows  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results.json")
# The server, and the two savers of the package.
SHIPPED = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "savers")
SERVE = os.path.join(SHIPPED, "serve.py")

# name, what it is, packages, operations tried by each failure (0: all)
SAVERS = [
    ("torch_save", "torch.save, own name, fsync, rename", ["torch"], 0),
    ("torch_save_two", "torch.save to one name by two processes", ["torch"], 0),
    ("distributed_checkpoint", "torch.distributed.checkpoint, two Gloo ranks, a folder a step", ["torch"], 0),
    ("hf_trainer", "Hugging Face Trainer, save_total_limit=1", ["transformers", "torch"], 0),
    ("lightning_trainer", "Lightning, ModelCheckpoint(save_last=True)", ["lightning", "torch"], 0),
    ("accelerate_state", "Accelerate, save_state, total_limit=1", ["accelerate", "torch"], 0),
]
FAILURES = ["kill", "disk_full", "EIO", "short_write", "hold"]


def path_of(name):
    own = os.path.join(HERE, f"{name}.py")
    return own if os.path.exists(own) else os.path.join(SHIPPED, f"{name}.py")


def config_text(name, title, points, python):
    return f"""# Does {title} survive?
name: {name}
suite: program
program:
  subject: "{title}"
  server: "{python} {SERVE} {path_of(name)}"
  setup: setup {{out}}
  save: save {{out}}
  resume: resume {{out}} {{resume}}
  failures: [{", ".join(FAILURES)}]
  points: {points}
  deadline_s: 30
"""


def versions(packages):
    return [f"{package} {importlib.metadata.version(package)}" for package in packages]


def try_lockstep(lockstep, scratch, saver, points, jobs):
    name, title, packages, usual = saver
    config = os.path.join(scratch, f"{name}.yaml")
    with open(config, "w") as file:
        file.write(config_text(name, title, usual if points is None else points, sys.executable))
    out = os.path.join(scratch, name)
    began = time.monotonic()
    run = subprocess.run([lockstep, "run", config, "--out", out, "--jobs", str(jobs)], capture_output=True, text=True, timeout=1800)
    if run.returncode not in (0, 1, 4, 5):
        return {"problem": run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"status {run.returncode}"}
    with open(os.path.join(out, "results.json")) as file:
        suite = json.load(file)["laboratory"]
    return {
        "title": title,
        "versions": versions(packages),
        "table": suite["table"],
        "facts": suite["facts"],
        "trials": suite["trials"],
        "seconds": round(time.monotonic() - began, 1),
        "first": first_sentences(suite["findings"]),
    }


def first_sentences(findings):
    """One finding a failure; paths of this machine stand for themselves nowhere."""
    sentences = {}
    for finding in findings:
        text = re.sub(r"/[^ '\"]*/work/\d+/", "", finding["sentence"])
        sentences.setdefault(finding["failure"], {"trial": finding["trial"], "outcome": finding["outcome"], "sentence": text})
    return sentences


def try_chaos(scratch, saver, points):
    name = saver[0]
    chaos = os.path.join(os.path.dirname(sys.executable), "ckpt-chaos")
    if not os.path.exists(chaos):
        return {"problem": "ckpt-chaos is not installed"}
    command = [chaos, "run", "--work", os.path.join(scratch, f"chaos-{name}"), "--max-points", str(points), "--modes", "before"]
    command += ["--result-file", "{out}/final.txt", "--step-regex", r"resumed from step (\d+)", "--timeout", "120"]
    command += ["--", sys.executable, SERVE, path_of(name), "whole", "{out}"]
    began = time.monotonic()
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return {"problem": "it did not end within 900 s"}
    said = (run.stdout + run.stderr).strip().splitlines()
    return {
        "version": versions(["ckpt-chaos"])[0],
        "points": points,
        "status": run.returncode,
        "said": [re.sub(r"/[^ ]*/", "", line)[:200] for line in said[-25:]],
        "seconds": round(time.monotonic() - began, 1),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--results", default=RESULTS)
    parser.add_argument("--only", default="")
    parser.add_argument("--points", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--chaos-points", type=int, default=6)
    parser.add_argument("--tools", default="lockstep,ckpt-chaos")
    options = parser.parse_args()
    os.makedirs(options.scratch, exist_ok=True)
    kept = {}
    if os.path.exists(options.results):
        with open(options.results) as file:
            kept = json.load(file)
    for saver in SAVERS:
        if options.only and saver[0] not in options.only.split(","):
            continue
        entry = kept.setdefault(saver[0], {})
        for tool in options.tools.split(","):
            print(f"    {saver[0]} by {tool}", file=sys.stderr, flush=True)
            if tool == "lockstep":
                entry[tool] = try_lockstep(options.lockstep, options.scratch, saver, options.points, options.jobs)
            else:
                entry[tool] = try_chaos(options.scratch, saver, options.chaos_points)
            with open(options.results, "w") as file:
                file.write(rows(kept, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
