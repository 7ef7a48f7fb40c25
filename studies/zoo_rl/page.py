"""docs/zoo_rl.md from the kept results: page.py [RESULTS] prints it. No verdict stands here."""

import json
import pathlib
import sys

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
HEADS = (
    "function", "value of a row", "group of one", "one NaN reward", "3 ranks", "8 ranks", "8, uneven", "8, one without rows",
    "signs flipped on 8, of 48",
)  # fmt: skip


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
        return f"rounding, {number(answer['ulp'])} ulp" if answer["ulp"] < 1000 else f"rounding, by {number(answer['largest_difference'])}"
    if verdict == "hang":
        return "**hang**"
    if verdict == "error":
        first = answer["words"].split(":")[0]
        return f"**error** on {first}" if first.startswith("rank") else f"**error**: {first}"
    named = " = ".join(answer.get("named", [])[:2]) or "not explained"
    amount = f" by {number(answer['largest_difference'])}" if "largest_difference" in answer else f": {answer['words']}"
    return f"**differs**{amount}: {named}"


def flips(answer):
    return f"{100 * answer['flips']:.0f} %" if answer and answer["verdict"] == "differs" and "flips" in answer else "–"


def title(entry):
    return f"{entry['library']}: {entry['name']}"


def table(results):
    yield row(HEADS)
    yield row(["---"] * len(HEADS))
    for entry in results["subjects"].values():
        if "error" in entry:
            yield row([title(entry), f"cannot be run: {entry['error']}"] + [""] * (len(HEADS) - 2))
            continue
        at = entry["layouts"]
        yield row(
            [title(entry), entry["words"], entry["group_of_one"], entry["missing"], cell(at["plain"]["3"]), cell(at["plain"]["8"]),
             cell(at["uneven"]["8"]), cell(at["empty"]["8"]), flips(at["plain"]["8"])]
        )  # fmt: skip
    for name, facts in results["libraries"].items():
        if "error" in facts:
            yield row([f"{name} {facts['version']}", f"cannot be run: {facts['error']}"] + [""] * (len(HEADS) - 2))


def asked(results):
    return [entry for entry in results["subjects"].values() if "error" not in entry]


def count(results, name, world, verdict):
    return sum(entry["layouts"][name][world]["verdict"] == verdict for entry in asked(results))


def totals(results):
    whole = len(asked(results))
    partitions = {"plain": "With 6 rows on each of 8 ranks", "uneven": "With uneven rows on 8 ranks", "empty": "With one of 8 ranks without rows"}
    for name, text in partitions.items():
        counts = [count(results, name, "8", verdict) for verdict in ("bits", "rounding", "differs", "error", "hang")]
        yield (
            f"- {text}, of {whole} functions {counts[0]} give one process's bits, {counts[1]} differ by rounding, {counts[2]} differ by more, {counts[3]} end in an "
            f"error, {counts[4]} hang."
        )


def others(results):
    heads = (
        "function", "constant 0.1, one process: largest value", "mean 1e4, one process: error", "constant, 8", "groups of one, 8", "one NaN, 8",
        "mean 1e4, 8",
    )  # fmt: skip
    yield row(heads)
    yield row(["---"] * len(heads))
    for entry in asked(results):
        at = entry["layouts"]
        constant = entry["constant"]["error"] if isinstance(entry["constant"], dict) else number(entry["constant"])
        error = "–" if entry["offset_error"] is None else number(entry["offset_error"])
        yield row([title(entry), constant, error] + [cell(at.get(name, {}).get("8")) for name in ("constant", "ones", "nan", "offset")])


def sentence(name, world, answer):
    of = {"plain": "", "uneven": " with uneven rows", "empty": ", one without rows"}[name]
    if answer["verdict"] in ("error", "hang"):
        return f"{world} ranks{of}: {answer['words']}."
    if answer["verdict"] != "differs":
        return ""
    share = f", {100 * answer['flips']:.0f} % of the signs" if answer.get("flips") else ""
    amount = f"{number(answer['largest_difference'])} at most{share}" if "largest_difference" in answer else answer["words"]
    return f"{world} ranks{of}: {' = '.join(answer.get('named', [])) or 'not explained'} ({amount})."


def details(results):
    """One entry for all functions with the same results."""
    alike = {}
    for entry in results["subjects"].values():
        alike.setdefault((entry["library"], entry["where"], entry["fed"], *said(entry)), []).append(entry["name"])
    for (library, where, fed, *results_text), names in alike.items():
        yield " ".join([f"- **{library}: {'; '.join(names)}** ({where}). Fed: {fed}.", *results_text])


def said(entry):
    if "error" in entry:
        return [f"It throws before it returns a value: {entry['error']}."]
    texts = [sentence(name, world, entry["layouts"][name][world]) for name in ("plain", "uneven", "empty") for world in ("3", "8")]
    constant, offset = entry["constant"], entry["offset_error"]
    if constant == "NaN" or not isinstance(constant, (dict, str)) and constant > 0.01:
        texts.append(f"Constant rewards of 0.1 give {number(constant)}.")
    if offset == "NaN" or offset is not None and offset > 1:
        texts.append(f"With a mean of 1e4 one process is wrong by {number(offset)}.")
    return [text for text in texts if text]


def consequences(results):
    found = {}
    for entry in asked(results):
        for worlds in entry["layouts"].values():
            for answer in worlds.values():
                for name in answer.get("named", [])[:1]:
                    found.setdefault(name, set()).add(title(entry))
    for name in sorted(found, key=lambda n: (-len(found[n]), n)):
        amount = f"{len(found[name])} function{'s' if len(found[name]) > 1 else ''}"
        yield f"- *{name}* ({amount}). {MEANS.get(name, '')}".rstrip()


def page(results):
    versions = ", ".join(f"{name} {facts['version']}" for name, facts in results["libraries"].items())
    lines = [
        "# Advantages and normalisers of other libraries, on 1, 3 and 8 ranks",
        "",
        "Look up here which convention the advantage and statistics functions of reinforcement-learning libraries use, and whether their results",
        "depend on the layout. Each function gets the same rewards in one process and on Gloo ranks. `ci/zoo_rl` makes this page from",
        "`studies/zoo_rl/results.json`; no cell is typed by hand.",
        "",
        *table(results),
        "",
        *totals(results),
        "",
        "*value of a row*: the function's value for a reward r, determined by experiment. *group of one*: for a batch of one row if the function has",
        "no groups. *+ ε*: added to the deviation; *inside the root*: added to the variance. *same bits*: all values are those of one process, bit for",
        "bit. *rounding*: the largest difference in units of the last place of the largest value. *differs*: more than rounding, by at most this much,",
        "and the statistic that gives these rows' values. *signs flipped*: the share of rows whose advantage has the opposite sign in one process.",
        "",
        "## How it was run",
        "",
        f"{versions}; torch {results['torch']}, Python {results['python']}, on a CPU. Constraints are in",
        f"`studies/zoo_rl/constraints.txt`. {results['rows']} rewards, float32, in groups of four: a normal mean for each group and a normal",
        "deviation for each row. Ranks are processes on Gloo and hold consecutive rows: 16 on each of 3 ranks, 6 on each of 8, so groups cross the",
        "borders of the 8. *uneven*: different numbers of rows, none 0; *without rows*: rank 1 holds none. Running normalisers see three batches, and",
        "the third is judged. A call that does not end within 20 s is a hang; if a rank throws, the others have 10 s to end. The libraries' own loops",
        "give equal numbers of rows to the ranks; the columns with other numbers apply to a loop of your own.",
        "",
        "Conventions are determined in one process (`studies/zoo_rl/conventions.py`): the function's values at rewards of size 1e6 are compared with every",
        "combination of centre, scale, ddof and prior; ε is solved for at spreads from 1e-18 to 100, and must be the same at each; a clamp shows at one",
        "row 7.9 deviations from the others. A function that fits none is called unknown. A difference is named by computing each known mistake",
        "(`studies/zoo_rl/layouts.py`) in float64: its values must equal the observed ones to 1e-4 of the largest.",
        "`studies/zoo_rl/conventions_test.py` plants conventions and mistakes, known and unknown.",
        "",
        "## Other inputs",
        "",
        *others(results),
        "",
        "*constant*: all rewards 0.1, groups of six: the correct advantage is 0, and any other value is a rounding error over ε. *mean 1e4*: the rewards plus",
        "1e4; the error is against the convention in float64, on the same float32 rewards.",
        "",
        "## Each function in detail",
        "",
        *details(results),
        "",
        "## What the named statistics do",
        "",
        *consequences(results),
    ]
    return "\n".join(lines) + "\n"


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("results.json")
    sys.stdout.write(page(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
