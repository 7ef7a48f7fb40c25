"""Writes the table of docs/savers.md from studies/savers/results.json; the rest of the page stands in page.md."""

import json
import os
import sys

import savers

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = [
    ("none", "undisturbed"),
    ("killed", "killed"),
    ("disk full from there on", "disk full"),
    ("fails with EIO", "EIO"),
    ("short write", "short write"),
    ("held until another has run", "schedules"),
    ("power lost", "power lost"),
]


def cell(entry, failure):
    rows = [row for row in entry["table"] if row["failure"].split(",")[0] == failure]
    tried = sum(row["cases"] for row in rows)
    if tried == 0:
        return "–"
    faults = {}
    for row in rows:
        if row["verdict"] == "fault":
            faults[row["outcome"]] = faults.get(row["outcome"], 0) + row["cases"]
    undecided = sum(row["cases"] for row in rows if row["verdict"] == "undecided")
    text = f"{sum(faults.values())} of {tried}"
    if faults:
        text = f"**{text}**: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(faults.items()))
    return text + (f"; {undecided} undecided" if undecided else "")


def table(results):
    lines = ["| saver | " + " | ".join(head for _, head in ROWS) + " | trials, time |", "|---|" + "---|" * (len(ROWS) + 1)]
    for name, title, _, _ in savers.SAVERS:
        entry = results.get(name, {}).get("lockstep")
        if entry is None:
            continue
        if "problem" in entry:
            lines.append(f"| {title} | could not be tried: {entry['problem']} |" + " |" * len(ROWS))
            continue
        cells = " | ".join(cell(entry, failure) for failure, _ in ROWS)
        lines.append(f"| {title} ({', '.join(entry['versions'])}) | {cells} | {entry['trials']} in {entry['seconds']:.0f} s |")
    return lines


def coverage(results):
    lines = []
    for name, title, _, _ in savers.SAVERS:
        entry = results.get(name, {}).get("lockstep", {})
        if "facts" in entry:
            facts = "; ".join(f"{fact['key']}: {fact['value']}" for fact in entry["facts"])
            lines.append(f"- {title}: {facts}.")
    return lines


def findings(results):
    lines = []
    for name, title, _, _ in savers.SAVERS:
        for failure, found in results.get(name, {}).get("lockstep", {}).get("first", {}).items():
            lines.append(f"- {title}, {failure}: **{found['outcome']}** (`{found['trial']}`): {found['sentence']}")
    return lines


def chaos(results):
    lines = []
    for name, title, _, _ in savers.SAVERS:
        entry = results.get(name, {}).get("ckpt-chaos")
        if entry is None:
            lines.append(f"- {title}: not run.")
        elif "problem" in entry:
            lines.append(f"- {title}: {entry['problem']}.")
        else:
            lines.append(f"- {title}: exit status {entry['status']}, {entry['seconds']:.0f} s, at most {entry['points']} points; the end of its output:")
            lines += ["", "  ```text", *("  " + line for line in entry["said"][-8:]), "  ```", ""]
    return lines


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else savers.RESULTS
    with open(path) as file:
        results = json.load(file)
    with open(os.path.join(HERE, "page.md")) as file:
        page = file.read()
    for mark, lines in {"TABLE": table, "COVERAGE": coverage, "FINDINGS": findings, "CHAOS": chaos}.items():
        page = page.replace(f"@{mark}@", "\n".join(lines(results)))
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
