"""docs/peers.md from the kept results: page.py [RESULTS] prints it. No verdict stands here."""

import json
import pathlib
import sys

ORDER = [
    "lockstep_layouts", "lockstep_equal", "lockstep_both", "detail_curves", "same_seed_curve", "debug_mode", "traincheck",
    "trainparity", "pytest_torch",
]  # fmt: skip
HEADS = {
    "lockstep_layouts": "lockstep 1x24 / 8x3", "lockstep_equal": "lockstep 8x3 / 8x3",
    "lockstep_both": "lockstep, fault in both", "detail_curves": "DETAIL + curves",
    "same_seed_curve": "curve, same seed", "debug_mode": "DebugMode", "traincheck": "traincheck",
    "trainparity": "trainparity", "pytest_torch": "pytest-torch",
}  # fmt: skip
#: a cause that says what differs and leaves open why
OPEN = {"", "unexplained", "random-stream-differs", "rate-differs", "replicas-drift", "update-differs"}


def kind(answer, first):
    """One word: named, step (found at the first step with an effect), late, found (without a step), not, cannot."""
    if "cannot" in answer:
        return "unasked" if answer["cannot"].startswith("not asked") else "cannot"
    if not answer.get("found"):
        return "not"
    if answer.get("named"):
        return "named"
    if "step" not in answer:
        return "found"
    return "step" if at_first_step(answer, first) else "late"


def at_first_step(answer, first):
    """What acts before the first step shows at the first step."""
    return "step" in answer and answer["step"] in (first, max(first, 0))


def cell(answer, first):
    what = kind(answer, first)
    step = f" {answer['step']}" if "step" in answer else ""
    if what == "late" and answer["step"] < first:
        return f"step{step} (early)" if answer["step"] >= 0 else "before step 0 (early)"
    return {
        "named": f"**named**{step}", "step": f"step{step}", "late": f"step{step} (late)", "found": "found", "not": "–",
        "cannot": "n/a", "unasked": "·",
    }[what]  # fmt: skip


def wrong_name(answer):
    return answer.get("found", False) and not answer.get("named") and answer.get("code", "") not in OPEN


def answer_of(tool, fault):
    return tool["faults"].get(fault, {"cannot": "not asked"})


def counts(tool, faults):
    kinds = {name: kind(answer_of(tool, name), facts["first"]) for name, facts in faults.items()}
    asked = [n for n, k in kinds.items() if k not in ("cannot", "unasked")]
    at_step = [n for n in asked if at_first_step(tool["faults"][n], faults[n]["first"])]
    return {
        "run": len(asked), "found": sum(kinds[n] != "not" for n in asked), "at its first step": len(at_step),
        "named": sum(kinds[n] == "named" for n in asked),
        "named as another fault": sum(wrong_name(tool["faults"][n]) for n in asked),
        "run, not found": sum(kinds[n] == "not" for n in asked), "cannot be run": sum(k == "cannot" for k in kinds.values()),
        "not run (time)": sum(k == "unasked" for k in kinds.values()),
    }  # fmt: skip


def row(cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(results, names):
    faults = results["faults"]
    yield row(["fault", "first effect"] + [HEADS[n] for n in names])
    yield row(["---"] * (len(names) + 2))
    for fault, facts in faults.items():
        mark = "" if facts["listed"] else " ¹"
        cells = [cell(answer_of(results["tools"][n], fault), facts["first"]) for n in names]
        yield row([f"`{fault}`{mark}", "start" if facts["first"] < 0 else f"step {facts['first']}"] + cells)


def totals(results, names):
    each = [counts(results["tools"][n], results["faults"]) for n in names]
    yield row(["of " + str(len(results["faults"])) + " faults"] + [HEADS[n] for n in names])
    yield row(["---"] * (len(names) + 1))
    for what in each[0]:
        yield row([what] + [c[what] for c in each])
    alarms = [results["tools"][n]["clean"] for n in names]
    yield row(["false alarms on clean runs"] + [f"{sum(bool(a.get('found')) for a in c.values())} of {len(c)}" for c in alarms])


def zeros(results):
    """The faults that lockstep itself does not find, place or name."""
    for name in ("lockstep_layouts", "lockstep_equal", "lockstep_both"):
        if name not in results["tools"]:
            continue
        tool, faults = results["tools"][name], results["faults"]
        missed = [f"`{n}`" for n, a in tool["faults"].items() if a.get("found") is False]
        found = {n: a for n, a in tool["faults"].items() if a.get("found")}
        late = [f"`{n}`" for n, a in found.items() if not at_first_step(a, faults[n]["first"])]
        unnamed = [f"`{n}` ({a.get('code') or 'no cause'})" for n, a in found.items() if not a.get("named")]
        yield f"**{tool['title']}.** Not found: {', '.join(missed) or 'none'}."
        yield f"Found at another step than the first one: {', '.join(late) or 'none'}."
        yield f"Found but not named (reported cause): {', '.join(unnamed) or 'none'}."
        yield ""


def page(results):
    names = [n for n in ORDER if n in results["tools"]]
    absent = [n for n in ORDER if n not in names]
    faults = results["faults"]
    lines = [
        "# The same faults in lockstep and other tools",
        "",
        f"Compare here which faults lockstep and its alternatives find: {len(faults)} planted faults of one small trainer, given to each tool. `ci/peers`",
        "makes this page from `studies/peers/results.json`, which keeps each tool's own output; no cell is typed by hand.",
        "",
        "**named** N: found at step N, and the output says which fault it is. step N: found, first reported at step N; (late) and",
        "(early): not the first step at which the fault has an effect. found: without a step. –: run, but reported nothing.",
        "n/a: the tool cannot be run on it. ·: not run, to save time.",
        "",
        *table(results, names),
        "",
        *([f"No answers are kept of: {', '.join(HEADS[n] for n in absent)}. `ci/peers --resume` runs these.", ""] if absent else []),
        *(["¹ not in `lockstep list mutants`.", ""] if not all(f["listed"] for f in faults.values()) else []),
        "## Totals",
        "",
        *totals(results, names),
        "",
        "lockstep, DebugMode, the curves and the golden files get a correct run to compare with; traincheck learns from one;",
        "trainparity and the other checks of pytest-torch need none. The faults are from lockstep's own list, which favours lockstep.",
        "",
        "## What lockstep misses",
        "",
        *zeros(results),
        "## How each tool was run, and what it cannot check",
        "",
        "The Python trainer (`studies/peers/twin.py`) is an energy model with gathered in-batch candidates, or a token-mean classifier, under",
        "DistributedDataParallel on Gloo, with AdamW, clipping, dropout keyed by sample, and accumulation; 24 rows a step. Ranks",
        "are real processes. Clean runs have other seeds and, where a tool supports it, other layouts.",
        f"Python {results['python']}, torch {results['torch']}, {results['cores']} cores.",
        "",
    ]
    for n in names:
        tool = results["tools"][n]
        of_torch = "torch " if n in ("detail_curves", "same_seed_curve", "debug_mode") else ""
        text = f"- **{tool['title']}** ({of_torch}{tool['version']}, {tool['layout']}): {tool['asked']}."
        if tool["cannot_be_asked"]:
            text += f" Not covered: {tool['cannot_be_asked']}."
        lines += [text + notes(n, tool["notes"])]
    return "\n".join(lines) + "\n"


def notes(name, kept):
    if name == "detail_curves" and kept:
        said = kept["as documented"]
        if said == "trains":
            return ""
        return (
            f" Set from the start, as documented, it ends the run on Gloo with this torch ({said}, in DDP's constructor). "
            "Therefore DDP is built at level INFO in a separate group, and DETAIL checks every collective of the steps."
        )
    if name == "traincheck" and kept.get("invariants"):
        each = [
            f"{workload}: {n['learnt']} learnt, {n['broken_on_clean']} of them broken by the second clean run, {n['kept']} kept"
            for workload, n in kept["invariants"].items()
        ]
        return " Invariants: " + "; ".join(each) + "."
    return ""


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("results.json")
    sys.stdout.write(page(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
