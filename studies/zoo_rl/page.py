"""A section of docs/studies.md from the kept results: section.py writes it. It holds no verdict."""

#: what a named statistic does to training, and how to fix it
MEANS = {
    "each rank's own mean and deviation": "Equal rewards get unequal advantages on different ranks, and W ranks of n rows do not train as one "
    "process of W·n rows. All-reduce count and sum, then the squared deviations from the common mean.",
    "each rank's own history": "Each rank normalises by its own data only, and the ranks' statistics never merge. "
    "Merge count, mean and variance of each batch over the ranks before the update.",
    "each rank's own mean": "The ranks subtract different baselines. All-reduce the sum and the count.",
    "groups cut at the ranks' borders": "A group that two ranks share is normalised as two groups. Gather the rewards, or keep groups whole.",
    "the advantages of other rows (rank × own rows as offset)": "Each rank takes its slice as if all ranks before it had as many rows as itself: with unequal "
    "numbers it trains on other rows' advantages.",
    "as if each rank were alone": "The ranks exchange nothing.",
    "the moments of no rows (0/0) reach every rank": "One rank without rows makes the statistics of all ranks NaN, permanently. Let such a rank "
    "add zeros to the sums.",
    "not scaled at all": "One rank without rows makes the deviation NaN on all ranks, and the function treats this as \"no scale available\".",
}
PARTITIONS = {"plain": "With 6 rows on each of 8 ranks", "uneven": "With uneven rows on 8 ranks", "empty": "With one of 8 ranks without rows"}
HEADS = ("function", "value of a row", "group of one", "one NaN reward", "8 ranks", "8, uneven", "8, one without rows")


def row(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def number(value):
    return value if isinstance(value, str) else f"{value:.3g}" if value else "0"


def cell(answer):
    if answer is None:
        return "–"
    verdict = answer["verdict"]
    if verdict == "bits":
        return "same bits"
    if verdict == "rounding":
        return "rounding" if answer["ulp"] < 1000 else f"rounding, by {number(answer['largest_difference'])}"
    if verdict == "hang":
        return "**hang**"
    if verdict == "error":
        first = answer["words"].split(":")[0]
        return f"**error** on {first}" if first.startswith("rank") else f"**error**: {first}"
    named = " = ".join(answer.get("named", [])[:2]) or "not explained"
    amount = f" by {number(answer['largest_difference'])}" if "largest_difference" in answer else f": {answer['words']}"
    return f"**differs**{amount}: {named}"


def table(results):
    """A row for all functions with the same results."""
    yield row(HEADS)
    yield row(["---"] * len(HEADS))
    alike = {}
    for title, entry in results["subjects"].items():
        if "error" in entry:
            cells = [f"cannot be run: {entry['error']}"] + [""] * (len(HEADS) - 2)
        else:
            cells = [entry["words"], entry["group_of_one"], entry["missing"], *(cell(entry[name]) for name in PARTITIONS)]
        alike.setdefault(tuple(cells), []).append(title)
    for cells, titles in alike.items():
        yield row(["; ".join(titles), *cells])
    for name, facts in results["libraries"].items():
        if "error" in facts:
            yield row([f"{name} {facts['version']}", f"cannot be run: {facts['error']}"] + [""] * (len(HEADS) - 2))


def asked(results):
    return {title: entry for title, entry in results["subjects"].items() if "error" not in entry}


def count(results, name, verdict):
    return sum(entry[name]["verdict"] == verdict for entry in asked(results).values())


def totals(results):
    whole = len(asked(results))
    for name, text in PARTITIONS.items():
        counts = [count(results, name, verdict) for verdict in ("bits", "rounding", "differs", "error", "hang")]
        yield (
            f"- {text}, of {whole} functions {counts[0]} give one process's bits, {counts[1]} differ by rounding, {counts[2]} differ by more, {counts[3]} end in an "
            f"error, {counts[4]} hang."
        )


def inputs(results):
    """Functions that are wrong in one process already."""
    for title, entry in asked(results).items():
        constant, offset = entry["constant"], entry["offset_error"]
        if constant == "NaN" or not isinstance(constant, (dict, str)) and constant > 0.01:
            yield f"- {title}: constant rewards of 0.1 give {number(constant)}, where 0 is right."
        if offset == "NaN" or offset is not None and offset > 1:
            yield f"- {title}: with a mean of 1e4 the values are wrong by {number(offset)}."


def consequences(results):
    found = {}
    for title, entry in asked(results).items():
        for partition in PARTITIONS:
            for name in entry[partition].get("named", [])[:1]:
                found.setdefault(name, set()).add(title)
    for name in sorted(found, key=lambda n: (-len(found[n]), n)):
        amount = f"{len(found[name])} function{'s' if len(found[name]) > 1 else ''}"
        yield f"- *{name}* ({amount}). {MEANS.get(name, '')}".rstrip()


def page(results):
    versions = ", ".join(f"{name} {facts['version']}" for name, facts in results["libraries"].items())
    lines = [
        f"{versions}; torch {results['torch']}, on a CPU; {results['rows']} rewards, float32, in groups of four.",
        "",
        *table(results),
        "",
        *totals(results),
        *inputs(results),
        "",
        "What the named statistics do:",
        "",
        *consequences(results),
    ]
    return "\n".join(lines) + "\n"
