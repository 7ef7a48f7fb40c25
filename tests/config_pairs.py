"""Is a key that differs between two configs found and named, and does one that changes nothing raise no alarm?

    config_pairs.py [--lockstep PROGRAM] [--part K/N] [--whole] [--trainers NAME ...]

Every key that can change training (`lockstep schema`), at each other word that it may be or at one other number: 4x6
with the change against 1x24 without it. What the key does is read from the losses of 4x6 with and without it.
Where they differ, the verdict between layouts must be `divergent` and its cause must name the key; where not a bit
differs, there must be no alarm. --whole: also on bases where keys act that need others; else every twelfth key.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FIRST = """# Is a key that differs found and named?
name: pairs
question: mechanism
layout: 4x6
reference: {layout: 1x24}
ranks: emulated
trace: full
steps: 4
forced_steps: [0, 1, 2, 3]
certify_steps: 0
timeout_s: 60
expect: [{when: {}, verdict: [identical, within_envelope, divergent, inconclusive]}]
"""
#: by trainer: the base, and settings of both sides on which keys act that need others
BASES = {
    "energy": (
        "data: {source: synthetic, series: 7, holdout_series: 1, series_steps: 86, min_context: 10}\n"
        "model: {width: 8, hidden: 16}\n",
        (
            {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.01, "lr": 0.2},
            {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.05, "schedule": "warmup", "warmup_steps": 3},
            {"data.block": 3, "data.correlation": 0.5, "accumulation": 2},
            {"negatives": "mixed", "layer.count": 4, "dropout": 0.1, "context_noise": 0.1},
        ),
    ),
    "classify": (
        "data: {source: synthetic, series: 20, holdout_series: 2, series_steps: 60}\n",
        ({"accumulation": 2, "label_smoothing": 0.1}, {"norm": "sync_batch"}),
    ),
    "flow_rl": (
        "tasks: reach press\npolicy: {hidden: 16, horizon: 12}\nclone: {steps: 40, episodes: 8}\ngroup: 3\n"
        "episodes: 240\neval_episodes: 4\n",
        ({"sync_policy_every": 2, "advantages": "normalised", "kl": 0.05},),
    ),
}
#: how a run goes, is written down, watched or planted with mistakes; or another question, or a file
NOT_TRIED = set(
    "trainer layout steps rows resume_from resume_step data.source data.train_file data.test_file trace snapshot_steps "
    "eval_every timeout_s control_guard ranks backend process_start bucket_cap_bytes gradient_as_bucket_view update "
    "find_unused_parameters data.cache data.prefetch env.NAME args.NAME command folder files replay "
    "metrics_from".split()
)
NOT_TRIED_BELOW = ("checkpoint.", "watch.", "mutant.", "second_mutant.")
TEXTS = {"tasks": ["reach"]}
#: what changes bits by design and nothing else: another order of rows, sums without rounding
ROUNDING = {("arithmetic", "exact"), ("perturb", "row_order")}
SILENT = ("identical", "within_envelope")


def others(key, schema, value):
    """Other values than `value` (None: the default), and whether each is tried or the first that a run can have."""
    schema = schema.get("anyOf", [schema])[0]
    value = schema.get("default") if value is None else value
    if "enum" in schema or key in TEXTS:
        return [word for word in schema.get("enum", TEXTS.get(key)) if word != value], True
    if schema.get("type") == "boolean":
        return [not value], False
    if schema.get("type") == "array":
        return [each for each in ([0], [1], [0, 1]) if each != value], False
    if schema.get("type") not in ("integer", "number"):
        return [], False
    numbers = [2 * value, value / 2, 0.1, 0.5, 1.0, 2.0, value + 1, value - 1]
    if schema["type"] == "integer":
        numbers = [int(number) for number in numbers if number == int(number)]
    inside = [n for n in numbers if schema.get("minimum", n) <= n <= schema.get("maximum", n) and n != value]
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    return [n for n in inside if above < n < below], False


class Base:
    def __init__(self, lockstep, folder, trainer, on):
        self.lockstep, self.on = lockstep, on
        self.name = trainer + "".join(f" {key}={value}" for key, value in on.items())
        self.text = FIRST + f"trainer: {trainer}\n" + BASES[trainer][0]
        self.text += "".join(f"{key}: {value}\n" for key, value in on.items())
        self.file, self.out = folder / "pairs.yaml", folder / "out"

    def call(self, command, pairs, *words, bits=False):
        """`bits`: against the base at the same layout, by bits alone; else against 1x24, with forced steps."""
        text = self.text.replace("layout: 1x24", "layout: 4x6").replace("[0, 1, 2, 3]", "[]") if bits else self.text
        lines = [] if bits else ["  - {layout: 4x6}"]
        lines += [f"  - {{{key}: {json.dumps(value)}}}" for key, value in pairs]
        self.file.write_text(text + "include:\n" + "\n".join(lines) + "\n")
        return subprocess.run([self.lockstep, command, self.file, *words], capture_output=True, text=True)

    def accepted(self, pairs):
        """Those that a run can have."""
        if not pairs or self.call("plan", pairs).returncode == 0:
            return pairs
        half = len(pairs) // 2
        return self.accepted(pairs[:half]) + self.accepted(pairs[half:]) if half else []

    def pairs(self, schema, part):
        keys = [key for key in schema if key not in NOT_TRIED and not key.startswith(NOT_TRIED_BELOW)]
        said = self.call("plan", [(key, 0) for key in keys]).stderr
        unknown = set(re.findall("unknown key '([^']+)'", said))  # of other trainers
        keys = [key for key in keys if key not in unknown][part[0] :: part[1]]
        left = {key: others(key, schema[key], self.on.get(key)) for key in keys}
        found = self.accepted([(key, value) for key, (values, each) in left.items() if each for value in values])
        waiting = {key: values for key, (values, each) in left.items() if not each}
        while any(waiting.values()):
            good = self.accepted([(key, values.pop(0)) for key, values in waiting.items() if values])
            found += good
            waiting = {key: values for key, values in waiting.items() if key not in dict(good)}
        return sorted(found, key=lambda pair: keys.index(pair[0]))

    def verdicts(self, pairs, bits=False):
        end = self.call("run", pairs, "--out", self.out, "--jobs", str(os.cpu_count()), bits=bits)
        if end.returncode > 1:
            sys.exit(f"{self.name}: {end.stderr}")
        return json.loads((self.out / "results.json").read_text())["verdicts"]

    def losses(self, run):
        return json.loads((self.out / "runs" / run / "rank-0.result.json").read_text())["curves"]["loss"]["values"]

    def judge(self, pairs):
        clean, *between = self.verdicts(pairs)
        wrong = [] if clean["verdict"] in SILENT else [f"{self.name}: 4x6 is {clean['verdict']}"]
        for (key, value), cell, bits in zip(pairs, between, self.verdicts(pairs, bits=True), strict=True):
            said, cause = cell["verdict"], cell["cause"] or {"code": "", "evidence": ""}
            by_name = f"the configs differ in {key} " in cause["evidence"] or cause["code"] == f"{key}-differs"
            named, differs = said == "divergent" and by_name, bits["verdict"] == "divergent"
            ours, theirs = self.losses(bits["run"]), self.losses(bits["reference_run"])
            gap = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
            undecided = key == "arithmetic" and said == "inconclusive"
            acts = gap > 1e-5 and (key, value) not in ROUNDING
            if not (named if acts else said in SILENT or undecided or (named and differs)):
                words = f"{said} ({cause['code']}: {cause['evidence']}); at one layout losses are {gap:.1g} apart"
                wrong.append(f"{self.name}: {key}={value} is {words}")
        return wrong


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--lockstep", default="build/release/bin/lockstep")
    options.add_argument("--part", default="0/12")
    options.add_argument("--whole", action="store_true", default="LOCKSTEP_WHOLE" in os.environ)
    options.add_argument("--trainers", nargs="*", default=BASES)
    options = options.parse_args()
    part = (0, 1) if options.whole else tuple(map(int, options.part.split("/")))
    printed = subprocess.run([options.lockstep, "schema"], check=True, capture_output=True, text=True).stdout
    schema = json.loads(printed)["definitions"]
    del schema["rule"], schema["settings"]
    wrong = tried = 0
    for trainer in options.trainers:
        for on in [{}, *BASES[trainer][1]] if options.whole else [{}]:
            with tempfile.TemporaryDirectory() as folder:
                base = Base(options.lockstep, pathlib.Path(folder), trainer, on)
                pairs = base.pairs(schema, part)
                problems = base.judge(pairs)
            words = ", ".join(f"{key}={value}" for key, value in pairs)
            print(f"{base.name}: {len(pairs)} pairs: {words}", *problems, sep="\n  ", flush=True)
            tried, wrong = tried + len(pairs), wrong + len(problems)
    print(f"{tried} pairs, {wrong} wrong")
    return 1 if wrong or tried < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
