"""A section of docs/studies.md from the kept results: section.py writes it. It holds no verdict."""

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


def totals(results, names):
    each = [counts(results["tools"][n], results["faults"]) for n in names]
    yield row(["of " + str(len(results["faults"])) + " faults"] + [HEADS[n] for n in names])
    yield row(["---"] * (len(names) + 1))
    for what in each[0]:
        yield row([what] + [c[what] for c in each])
    alarms = [results["tools"][n]["clean"] for n in names]
    yield row(["false alarms on clean runs"] + [f"{sum(bool(a.get('found')) for a in c.values())} of {len(c)}" for c in alarms])


def zeros(results):
    """The faults that lockstep itself does not find, place or name; once for comparisons with the same answer."""
    texts = {}
    for name in ("lockstep_layouts", "lockstep_equal", "lockstep_both"):
        if name not in results["tools"]:
            continue
        tool, faults = results["tools"][name], results["faults"]
        found = {n: a for n, a in tool["faults"].items() if a.get("found")}
        codes = {}
        for fault, answer in found.items():
            if not answer.get("named"):
                codes.setdefault(answer.get("code") or "no cause", []).append(f"`{fault}`")
        kinds = {
            "Not found": [f"`{n}`" for n, a in tool["faults"].items() if a.get("found") is False],
            "Found at another step than the first one": [f"`{n}`" for n, a in found.items() if not at_first_step(a, faults[n]["first"])],
            "Found but not named": [f"{', '.join(each)} ({code})" for code, each in codes.items()],
        }
        for what, each in kinds.items():
            texts.setdefault(f"{what}: {', '.join(each)}.", []).append(HEADS[name]) if each else None
    for text, names in texts.items():
        yield f"- {'; '.join(names)}. {text}"


def page(results):
    names = [n for n in ORDER if n in results["tools"]]
    absent = [n for n in ORDER if n not in names]
    lines = [
        *totals(results, names),
        "",
        *([f"No answers are kept of: {', '.join(HEADS[n] for n in absent)}. `ci/peers --resume` runs these.", ""] if absent else []),
        "What lockstep misses:",
        "",
        *zeros(results),
        "",
        f"What the others cannot check (Python {results['python']}, torch {results['torch']}):",
        "",
    ]
    for n in names:
        tool = results["tools"][n]
        if tool["cannot_be_asked"]:
            lines += [f"- {tool['title']} ({tool['version']}, {tool['layout']}): {tool['cannot_be_asked']}."]
    return "\n".join(lines) + "\n"
