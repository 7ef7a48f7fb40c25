"""docs/zoo.md from the kept results: page.py [RESULTS] prints it. No verdict stands here."""

import json
import pathlib
import sys

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
    return f"differs by {100 * one['off']:.3g} %, cosine {one['cos']:.3f}"


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


def later(entry):
    if "later" not in entry:
        return entry.get("later_error") and "error" or "–"
    said = entry["later_said"]
    return gradient(entry["later"]) + (f"; {judged(said)}" if said["verdict"] == "divergent" else "")


def should(entry):
    return "equal" if entry["expect"] == "quiet" else "differs"


def table(results):
    heads = ("trainer or loss", "rows", "should be", "gradient", f"after {results['steps']} steps", *WAYS.values())
    yield row(heads)
    yield row(["---"] * len(heads))
    for entry in results["subjects"].values():
        title = f"{entry['library']}: {entry['name']}"
        verdicts = [judged(entry["lines"].get(way)) for way in WAYS]
        yield row([title, entry["layout"], should(entry), gradient(entry.get("initial")), later(entry), *verdicts])
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


def details(results):
    """What is said of each that should differ, or that something is wrong with; once for all ways that say the same."""
    for entry in results["subjects"].values():
        texts = {}
        for way, said in entry["lines"].items():
            if reading_of(said) != "quiet":
                texts.setdefault(said.get("error") or said["sentence"], []).append(WAYS[way])
        if not texts:
            continue
        known = f" (reported: {entry['known']})" if entry["known"] else ""
        expected = "" if entry["expect"] == "quiet" else f" Right: {' or '.join(f'`{c}`' for c in entry['expect'])}."
        said = " ".join(f"{', '.join(ways)}: {text.strip().rstrip('.')}." for text, ways in texts.items())
        yield f"- **{entry['library']}: {entry['name']}**{known}.{expected} {said}"


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
        "# Trainers and losses of other libraries, in one process and on three ranks",
        "",
        "Look up here whether a trainer or a loss of another library computes on three ranks the gradient that one process computes, which flags decide",
        "it, and what lockstep says of it. `ci/zoo` makes this page from `studies/zoo/results.json`; no cell is typed by hand.",
        "",
        *table(results),
        "",
        "*should be*: by the library's documentation or a public report, before the run. *gradient*: of the first step that should differ, else of step 0,",
        f"on the ranks after the reduction, from weights that both share; *exact*: within {EXACT:g} of one process's. *× f*: f times it. *after {results['steps']} steps*: the",
        "same from the weights that one process reaches by then, and what is said if that differs. *inconclusive*: no difference, but without a replay the",
        "later steps cannot be judged by value; *within envelope*: replayed steps are equal within rounding.",
        "",
        *totals(results),
        "",
        "## What lockstep does wrong here",
        "",
        *faults,
        "",
        "## How it was run",
        "",
        f"{versions}; torch {results['torch']}, Python {results['python']}, on a CPU. Constraints are in `studies/zoo/constraints.txt`. Programs stand in",
        f"`studies/zoo/of_*.py`: models of a thousand parameters with random weights, {results['run_steps']} steps, and {results['later_steps']} from the later weights. The {results['world']} ranks are processes on",
        "Gloo, forked from one that has imported the library. Rows have unequal numbers of tokens, and the ranks unequal numbers of rows where the library",
        "allows that.",
        "",
        "The trainers are unmodified. *0 lines*: the program has nothing of lockstep; each forked rank arms the probe as the start of a process under",
        "`lockstep trace` does. *3 lines*:",
        "`attach`, `rows` with the sample ids, `step` with the loss, and with the rows' losses where the program has them; in Transformers and Lightning they stand in a callback and in the method that computes",
        "the loss. *replay*: a function that computes a step once more, in float32 and float64, is given too. open_clip's roles of towers are declared in",
        "`attach`. open_clip's losses are loaded from its `loss.py` alone, which needs no torchvision; TRL's and verl's are called on a small policy, without",
        "generation.",
        "",
        "## Each difference in detail",
        "",
        *details(results),
    ]
    return "\n".join(lines) + "\n"


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("results.json")
    sys.stdout.write(page(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
