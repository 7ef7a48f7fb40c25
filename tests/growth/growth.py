#!/usr/bin/env python3
"""How cost grows with the size of the work: rows, ranks, width, steps, cells.

usage: growth.py LOCKSTEP OUT [--quick] [--only SERIES] [--bridge ddp_bridge.py]

Runs small matrices at growing sizes, each quantity as a series: seconds of the training loop (from the ranks' results), peak
memory of a run's processes, bytes of its traces, and what PyTorch alone takes for the same step. Fits an exponent to the upper
half of each series and writes OUT/growth.md, OUT/growth.json and OUT/growth.svg. Ends with 1 if an exponent is above the one that
the mathematics asks for by more than a quarter, or if the forced steps of a reference grow faster than its native ones.

Times drift with the machine; exponents and ratios are of one run. --quick: the small sizes alone.
"""

import argparse
import glob
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time

# Energies of all pairs of rows and candidates: the square of the rows.
PAIRS, LINEAR = 2.0, 1.0
SLACK = 0.25


def config(trainer, reference, layout, steps=4, extra=""):
    series = 400 if int(reference.split("x")[1]) <= 1536 else 900
    return f"""name: growth
trainer: {trainer}
data: {{source: synthetic, series: {series}}}
steps: {steps}
seeds: 0
question: mechanism
ranks: emulated
forced_steps: [1]
certify_steps: 0
reference: {{layout: {reference}}}
axes:
  layout: [{layout}]
{extra}"""


class Bench:
    def __init__(self, lockstep, out):
        self.lockstep, self.out, self.number = lockstep, out, 0

    def run(self, text):
        """Of a matrix: wall seconds, memory of its largest process, bytes of traces, its runs' results, and the cell's verdict."""
        self.number += 1
        folder = os.path.join(self.out, "work", str(self.number))
        os.makedirs(folder)
        path = os.path.join(folder, "growth.yaml")
        with open(path, "w") as file:
            file.write(text)
        began = time.monotonic()
        process = subprocess.Popen([self.lockstep, "run", path, "--out", folder + "/out"], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if process.returncode not in (0, 1):
            print(output[-2000:], file=sys.stderr)
            raise SystemExit(f"lockstep run {path}: exit {process.returncode}")
        runs = {}
        for name in glob.glob(folder + "/out/runs/*/rank-0.result.json"):
            with open(name) as file:
                result = json.load(file)
            run = name.split("/")[-2]
            kind = "twin" if "-twin-" in run else "forced" if "-forced-" in run else "free"
            runs[run.split("-")[0], kind] = result
        traced = sum(os.path.getsize(trace) for trace in glob.glob(folder + "/out/runs/*/*.trace"))
        verdict = "within" if "within envelope" in output else output.strip().split("\n")[1][:60]
        shutil.rmtree(folder)
        return {"wall_s": seconds, "memory_bytes": 1024 * usage.ru_maxrss, "trace_bytes": traced, "runs": runs, "verdict": verdict}


def forced_ratio(result, layout):
    runs = result["runs"]
    native = runs[layout, "free"]["step_seconds"]
    return (runs[layout, "forced"]["train_seconds"] + runs[layout, "twin"]["train_seconds"]) / native


def of_rows(bench, trainer, sizes):
    points = []
    for rows in sizes:
        result = bench.run(config(trainer, f"1x{rows}", f"{rows // 3}x3"))
        reference = f"1x{rows}"
        points.append({"size": rows, "native_s": result["runs"][reference, "free"]["step_seconds"],
                       "forced_s": sum(result["runs"][reference, kind]["train_seconds"] for kind in ("forced", "twin")),
                       "cell_s": result["runs"][f"{rows // 3}x3", "free"]["step_seconds"],
                       "ratio": forced_ratio(result, reference), "memory_bytes": result["memory_bytes"],
                       "trace_bytes": result["trace_bytes"], "verdict": result["verdict"]})
        print(trainer, "rows", points[-1], flush=True)
    return points


def of_ranks(bench, sizes):
    points = []
    for ranks in sizes:
        result = bench.run(config("classify", f"1x{3 * ranks}", f"{ranks}x3"))
        points.append({"size": ranks, "cell_s": result["runs"][f"{ranks}x3", "free"]["step_seconds"],
                       "memory_bytes": result["memory_bytes"], "trace_bytes": result["trace_bytes"]})
        print("ranks", points[-1], flush=True)
    return points


def of_width(bench, sizes):
    points = []
    for width in sizes:
        extra = f"model: {{width: {width}, hidden: {2 * width}}}\n"
        result = bench.run(config("energy", "1x24", "8x3", extra=extra))
        points.append({"size": width, "native_s": result["runs"]["1x24", "free"]["step_seconds"],
                       "ratio": forced_ratio(result, "1x24"), "trace_bytes": result["trace_bytes"]})
        print("width", points[-1], flush=True)
    return points


def of_steps(bench, sizes):
    points = []
    for steps in sizes:
        text = config("energy", "1x8", "2x4", steps, "model: {width: 8, hidden: 16}\n").replace("forced_steps: [1]", "forced_steps: []")
        result = bench.run(text)
        points.append({"size": steps, "run_s": result["runs"]["1x8", "free"]["train_seconds"], "trace_bytes": result["trace_bytes"]})
        print("steps", points[-1], flush=True)
    return points


def of_cells(bench, sizes):
    points = []
    for cells in sizes:
        path = os.path.join(bench.out, "cells.yaml")
        rates = ", ".join(str(round(1e-4 * (1 + cell), 6)) for cell in range(cells))
        with open(path, "w") as file:
            file.write(config("energy", "1x24", "8x3").replace("axes:\n", f"axes:\n  lr: [{rates}]\n"))
        began = time.monotonic()
        subprocess.run([bench.lockstep, "plan", path, "--out", os.path.join(bench.out, "nothing")], check=True,
                       stdout=subprocess.DEVNULL)
        points.append({"size": cells, "plan_s": time.monotonic() - began})
        print("cells", points[-1], flush=True)
    return points


def of_pytorch(bridge, sizes):
    """A step of the same model in PyTorch: forward, backward, AdamW, one thread."""
    sys.path.insert(0, os.path.dirname(bridge))
    import torch
    from ddp_bridge import Energy
    torch.set_num_threads(1)
    points = []
    for rows in sizes:
        model = Energy({"seed": 0, "channels": 6, "context_steps": 16, "action_steps": 8, "temperature": 0.5, "row_weight": 1 / rows})
        optimizer = torch.optim.AdamW(model.parameters())
        context, mask = torch.randn(rows, 16, 6), torch.ones(rows, 16, dtype=torch.bool)
        action, target = torch.randn(rows, 48), torch.arange(rows)
        seconds = []
        for _ in range(5):
            dropout = torch.ones(rows, rows, 64)
            began = time.monotonic()
            optimizer.zero_grad()
            model(context, mask, action, dropout, target).backward()
            optimizer.step()
            seconds.append(time.monotonic() - began)
        points.append({"size": rows, "pytorch_s": statistics.median(seconds)})
        print("pytorch", points[-1], flush=True)
    return points


def exponent(points, key):
    """Of size, by least squares in logarithms over the upper half."""
    some = [point for point in points if point.get(key, 0) > 0]
    some = some[-max(2, (len(some) + 1) // 2):]
    if len(some) < 2:
        return None
    xs = [math.log(point["size"]) for point in some]
    ys = [math.log(point[key]) for point in some]
    x, y = statistics.mean(xs), statistics.mean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def words(key, value):
    if key.endswith("_bytes"):
        return f"{value / 1e6:.1f} MB"
    return f"{value:.1f} ×" if key == "ratio" else f"{1000 * value:.3g} ms" if key.endswith("_s") else str(value)


def table(name, points, asked):
    keys = [key for key in points[0] if key not in ("size", "verdict")]
    lines = [f"### {name}", "", "| size | " + " | ".join(keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for point in points:
        lines.append(f"| {point['size']} | " + " | ".join(words(key, point[key]) for key in keys) + " |")
    fitted = {key: exponent(points, key) for key in keys}
    lines.append("| exponent | " + " | ".join("–" if fitted[key] is None else f"{fitted[key]:.2f}" for key in keys) + " |")
    problems = [f"{name}: {key} grows with exponent {fitted[key]:.2f}, and the mathematics asks for {asked[key]:g}"
                for key in keys if key in asked and fitted[key] is not None and fitted[key] > asked[key] + SLACK]
    return "\n".join(lines) + "\n", problems


def drawing(series):
    """Seconds over size, both in logarithms, a line a quantity."""
    lines = [(f"{name} {key}", [(p["size"], p[key]) for p in points if p.get(key, 0) > 0])
             for name, points in series.items() for key in points[0] if key.endswith("_s")]
    lines = [line for line in lines if len(line[1]) > 1]
    xs = [math.log10(x) for _, line in lines for x, _ in line]
    ys = [math.log10(y) for _, line in lines for _, y in line]
    left, top, width, height = 60, 20, 520, 20 * max(len(lines), 16)
    place = lambda x, y: (left + (math.log10(x) - min(xs)) / (max(xs) - min(xs)) * width,
                          top + height - (math.log10(y) - min(ys)) / (max(ys) - min(ys)) * height)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 260} {height + 70}" font-family="sans-serif" font-size="12">']
    for tick in range(math.ceil(min(ys)), math.floor(max(ys)) + 1):
        y = place(10 ** min(xs), 10 ** tick)[1]
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/><text x="{left - 6}" y="{y + 4:.1f}" '
                   f'text-anchor="end">{10.0 ** tick:g} s</text>')
    for tick in range(math.ceil(min(xs)), math.floor(max(xs)) + 1):
        x = place(10 ** tick, 10 ** min(ys))[0]
        out.append(f'<text x="{x:.1f}" y="{top + height + 20}" text-anchor="middle">{10 ** tick:,}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">rows, ranks, width, steps or cells</text>')
    for i, (name, line) in enumerate(lines):
        colour = f"hsl({360 * i // len(lines)} 65% 40%)"
        way = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in line)
        out.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        out += ['<circle cx="{:.1f}" cy="{:.1f}" r="2.5" fill="{}"/>'.format(*place(x, y), colour) for x, y in line]
        out.append(f'<text x="{left + width + 14}" y="{top + 14 + 18 * i}" fill="{colour}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--bridge", default="")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    bench = Bench(os.path.abspath(options.lockstep), os.path.abspath(options.out))
    q = options.quick
    plans = {
        "rows, energy": (lambda: of_rows(bench, "energy", [24, 48, 96, 192, 384] + ([] if q else [768, 1536])),
                         {"native_s": PAIRS, "forced_s": PAIRS, "cell_s": PAIRS, "trace_bytes": PAIRS}),
        "rows, classify": (lambda: of_rows(bench, "classify", [24, 96, 384] + ([] if q else [1536, 3072])),
                           {"native_s": LINEAR, "forced_s": LINEAR, "cell_s": LINEAR, "trace_bytes": LINEAR}),
        "ranks": (lambda: of_ranks(bench, [2, 8, 64] + ([] if q else [256, 1024])), {"cell_s": LINEAR, "trace_bytes": LINEAR}),
        "width": (lambda: of_width(bench, [32, 64, 128] + ([] if q else [256, 512, 1024])), {"native_s": PAIRS, "trace_bytes": PAIRS}),
        "steps": (lambda: of_steps(bench, [100, 1000] + ([] if q else [10000, 100000])), {"run_s": LINEAR, "trace_bytes": LINEAR}),
        "cells": (lambda: of_cells(bench, [10, 100, 1000] + ([] if q else [10000])), {"plan_s": LINEAR}),
    }
    if options.bridge:
        plans["rows, PyTorch alone"] = (lambda: of_pytorch(options.bridge, [24, 48, 96, 192, 384] + ([] if q else [768])), {})
    series, text, problems = {}, [], []
    for name, (measure, asked) in plans.items():
        if options.only and options.only not in name:
            continue
        series[name] = measure()
        lines, wrong = table(name, series[name], asked)
        text.append(lines)
        problems += wrong
        ratio = exponent(series[name], "ratio")
        if "rows" in name and ratio is not None and ratio > SLACK:
            problems.append(f"{name}: forced steps grow faster than native ones, with exponent {ratio:.2f} of their ratio")
    with open(os.path.join(options.out, "growth.md"), "w") as file:
        file.write("\n".join(text))
    with open(os.path.join(options.out, "growth.json"), "w") as file:
        json.dump(series, file, indent=1)
    with open(os.path.join(options.out, "growth.svg"), "w") as file:
        file.write(drawing(series))
    print("\n".join(text))
    for problem in problems:
        print("GROWS: " + problem)
    shutil.rmtree(os.path.join(options.out, "work"), ignore_errors=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
