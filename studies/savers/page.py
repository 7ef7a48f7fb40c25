"""A section of docs/studies.md from the kept results: section.py writes it."""

import savers

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


def chaos(results):
    """What ckpt-chaos counts, a line a saver."""
    for name, title, _, _ in savers.SAVERS:
        entry = results.get(name, {}).get("ckpt-chaos", {"problem": "not run"})
        yield f"- {title}: {entry.get('problem') or entry['said'][-1]}."


def page(results):
    return "\n".join([*table(results), "", "ckpt-chaos on the same savers, at six points each:", "", *chaos(results)]) + "\n"
