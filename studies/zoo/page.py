"""A section of docs/studies.md from the kept results: section.py writes it. It holds no verdict."""

import collections

#: what a reading means, in the order in which the page counts them
READINGS = {
    "same": "should be the same, and are", "named": "should differ, do from that step on, and have a right name", "unnamed": "should differ, do from that step on, without a name",
    "unseen": "should differ, and are not seen", "wrong": "should differ, and have a wrong name", "wrong step": "should differ, and do from another step on",
    "alarm": "should be the same: a false alarm", "undecided": "undecided", "error": "ended in an error",
}  # fmt: skip
WRONG = ("unseen", "wrong", "wrong step", "alarm", "undecided")


def row(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def says(entry):
    """A verdict in a cell."""
    mark = "**" if entry["reading"] in WRONG else ""
    step = f" from step {entry['step']}" if entry["step"] is not None and entry["verdict"] != "error" else ""
    words = f"`{entry['code']}`" if entry["code"] else "" if entry["verdict"] == "same" else entry["words"]
    return f"{mark}{entry['verdict']}{step}{mark}" + (f": {words}" if words else "")


def page(results):
    versions = ", ".join(f"{name} {facts['version']}" for name, facts in results["libraries"].items())
    lines = [f"{versions}, on a CPU; {results['world']} ranks.", ""]
    counts = collections.Counter(entry["reading"] for entry in results["subjects"].values())
    lines += [row(["", "programs"]), row(["---"] * 2), *(row([words, counts[how]]) for how, words in READINGS.items() if counts[how]), ""]
    lines += [row(["trainer or loss", "should be", "`lockstep check` says", "s"]), row(["---"] * 4)]
    for key, entry in results["subjects"].items():
        known = f" ({entry['known']})" if entry["known"] else ""
        lines.append(row([key + known, f"`{entry['expect'][0]}`" if entry["expect"] else "the same", says(entry), f"{entry['seconds']:.0f}"]))
    lines += [row([f"{name} {facts['version']}", f"cannot be run: {facts['error']}", "", ""]) for name, facts in results["libraries"].items() if "error" in facts]
    return "\n".join(lines) + "\n"
