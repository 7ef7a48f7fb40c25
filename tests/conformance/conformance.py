"""Asks `lockstep compare` about recorded runs of trainers that are not lockstep's, and holds its answers against foreign.json.

    conformance.py --lockstep PROGRAM [--only TEXT] [--update]

foreign.tar.xz holds the runs: models of several kinds on one to eight ranks, plain, sharded, tensor- and pipeline-parallel, resumed,
in low precision, with and without declarations, each right and with a mistake. A row has the run's name, that of its reference, how many
permuted repeats of this there are, and what is said. `truth`: the right names where none of them is said. --update rewrites the rows.
"""

import argparse
import json
import pathlib
import sys
import tarfile
import tempfile

from said import said_by

HERE = pathlib.Path(__file__).parent
ASKED = ("truth", "reference", "repeats")  # what a row says beside the answer
WORDS = {ord(" "): "-", ord(","): None, ord(":"): None}  # of a name, as a folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    rows, now, problems = json.loads((HERE / "foreign.json").read_text()), [], 0
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(HERE / "foreign.tar.xz") as runs:
        runs.extractall(scratch)
        folder = pathlib.Path(scratch)
        for row in rows:
            asked = {key: row[key] for key in ASKED if key in row}
            expected = {key: value for key, value in row.items() if key not in ASKED}
            said, words = expected, ""
            if options.only in row["name"]:
                a, b = folder / row["reference"], folder / row["name"].translate(WORDS)
                repeats = [f"{a}-order-{k + 1}" for k in range(row.get("repeats", 0))]
                said, words = said_by(options.lockstep, a, b, expected, repeats)
            now.append(said | asked)
            if said != expected:
                problems += 1
                print(f"problem: expected {expected}, lockstep says {said}: {words}")
    if options.update:
        (HERE / "foreign.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in now) + "\n]\n")
    print(f"{len(rows)} pairs, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
