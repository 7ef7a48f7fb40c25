"""A section of docs/studies.md from the kept results: section.py writes it. It holds no verdict."""

EXACT = 1e-4  # of a group's gradient
WAYS = {"0": "0 lines", "3": "3 lines", "10": "replay"}
#: what a reading means, in the order in which the page counts them
READINGS = {
    "quiet": "should be equal, and no alarm", "named": "should differ, and named rightly", "unnamed": "should differ, seen and not named",
    "unseen": "should differ, and not seen", "wrong": "should differ, and named wrongly", "wrong step": "should differ, and seen at another step",
    "alarm": "should be equal, and a false alarm", "failed": "not judged", "error": "the run ended in an error",
}  # fmt: skip


def row(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def reading_of(said):
    return "error" if "error" in said else said["reading"]


def factor(one):
    """A group's gradient on the ranks, in terms of that of one process."""
    if one["cos"] is None:
        return "none" if one["ratio"] == 0 else "where one process has none"
    if one["off"] <= EXACT:
        return "exact"
    if one["cos"] >= 1 - 1e-6:
        return f"× {one['ratio']:.4g}"
    return f"off by {100 * one['off']:.3g} %"


def gradient(groups):
    if not groups:
        return "–"
    words = {name: factor(one) for name, one in groups.items()}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{name}: {word}" for name, word in words.items())


def judged(said):
    """A verdict in a cell."""
    if said is None:
        return "–"
    how = reading_of(said)
    if how == "error":
        return "error"
    if how == "failed":
        return "not judged"
    if said["verdict"] != "divergent":
        return said["verdict"].replace("_", " ") + (" (**not seen**)" if how == "unseen" else "")
    place = f"step {said['step']}, {said['phase']}"
    code = f"`{said['code']}`" if said["code"] else "no code"
    note = {"alarm": "**false alarm**: ", "wrong": "**wrong name**: ", "wrong step": "**wrong step**: "}.get(how, "")
    return f"{note}{code}, {place}"


def verdicts(entry):
    """What lockstep says, once for all ways that say the same."""
    ways = {}
    for way, said in entry["lines"].items():
        ways.setdefault(judged(said), []).append(WAYS[way])
    return next(iter(ways)) if len(ways) == 1 else "; ".join(f"{', '.join(names)}: {text}" for text, names in ways.items())


def is_exact(entry):
    """Should be equal, is, and raises no alarm."""
    quiet = entry["expect"] == "quiet" and all(reading_of(said) == "quiet" for said in entry["lines"].values())
    return quiet and gradient(entry.get("initial")) == "exact"


def exact(results):
    by_library = {}
    for entry in filter(is_exact, results["subjects"].values()):
        by_library.setdefault(entry["library"], []).append(entry["name"])
    for library, names in by_library.items():
        yield f"- {library}: {'; '.join(names)}."


def table(results):
    heads = ("trainer or loss", "should be", "gradient", "lockstep says")
    yield row(heads)
    yield row(["---"] * len(heads))
    for entry in results["subjects"].values():
        if not is_exact(entry):
            equal = "equal" if entry["expect"] == "quiet" else f"`{entry['expect'][0]}`"
            known = f" ({entry['known']})" if entry["known"] else ""
            yield row([f"{entry['library']}: {entry['name']}{known}", equal, gradient(entry.get("initial")), verdicts(entry)])
    for name, facts in results["libraries"].items():
        if "error" in facts:
            yield row([f"{name} {facts['version']}", f"cannot be run: {facts['error']}"] + [""] * (len(heads) - 2))


def count(results, way, how):
    return sum(reading_of(entry["lines"][way]) == how for entry in results["subjects"].values() if way in entry["lines"])


def totals(results):
    yield row(["", *WAYS.values()])
    yield row(["---"] * (1 + len(WAYS)))
    for how, words in READINGS.items():
        counts = [count(results, way, how) for way in WAYS]
        if any(counts):
            yield row([words, *counts])


def wrong(results):
    """What lockstep itself does wrong here."""
    for entry in results["subjects"].values():
        for way, said in entry["lines"].items():
            if reading_of(said) in ("alarm", "wrong", "wrong step", "unseen", "failed"):
                yield f"- {entry['library']}: {entry['name']}, {WAYS[way]}: {judged(said)}."


def page(results):
    versions = ", ".join(f"{name} {facts['version'].split('+')[0]}" for name, facts in results["libraries"].items() if name != "torch")
    faults = list(wrong(results)) or ["- Nothing: no false alarm, no wrong name, no difference unseen."]
    lines = [
        f"{versions}; torch {results['torch']}, on a CPU; {results['world']} ranks.",
        "",
        *totals(results),
        "",
        f"The gradient is that of one process (within {EXACT:g}), and lockstep raises no alarm, in:",
        "",
        *exact(results),
        "",
        "All others:",
        "",
        *table(results),
        "",
        "What lockstep does wrong here:",
        "",
        *faults,
    ]
    return "\n".join(lines) + "\n"
