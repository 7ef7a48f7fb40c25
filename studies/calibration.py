"""How often does the t test call real runs equivalent that differ by exactly the margin?

    python3 studies/calibration.py build/release/bin/lockstep [RUNS]

Two arms without a common run are drawn from runs that differ in their seed alone, and the margin is added.
The rule is written a second time; unit tests hold lockstep's own against synthetic draws.
"""

import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ALPHA, MARGIN, DRAWS = 0.05, 0.03, 20_000
QUANTILES = {5: 2.1318, 10: 1.8331, 20: 1.7291}  # Student's at 1 - ALPHA
CONFIG = """# What do equal runs reach?
{{name: pool, data: {{source: basic_motions}}, steps: 120, eval_every: 0, trace: off, forced_steps: [],
  certify_steps: 0,
  question: outcome, seeds: 0..{last}, reference: {{layout: 1x24}},
  include: [{{layout: 1x24, lr_scale: 0.125}}], power_controls: [{{lr_scale: 0.125}}]}}
"""


def equivalent(differences):
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return abs(statistics.fmean(differences)) + QUANTILES[len(differences)] * error < MARGIN


def main(lockstep, runs="100"):
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "pool.yaml")
        config.write_text(CONFIG.format(last=int(runs) - 1))
        subprocess.run([lockstep, "run", config, "--out", folder + "/out"], check=True, stdout=sys.stderr)
        found = sorted(pathlib.Path(folder, "out/runs").glob("1x24-s*/rank-0.result.json"))
        pool = [json.loads(path.read_text())["metrics"]["accuracy_24"]["value"] for path in found]
    draw, rates = random.Random(1), []
    print(f"{len(pool)} runs, sd {statistics.stdev(pool):.4f}, margin {MARGIN}")
    for pairs in QUANTILES:
        arms = [draw.sample(pool, 2 * pairs) for _ in range(DRAWS)]
        rates.append(sum(equivalent([MARGIN + a - b for a, b in zip(arm[::2], arm[1::2])]) for arm in arms) / DRAWS)
        print(f"{pairs} pairs: {100 * rates[-1]:.2f} % called equivalent")
    return max(rates) > ALPHA + 4 * math.sqrt(ALPHA * (1 - ALPHA) / DRAWS)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
