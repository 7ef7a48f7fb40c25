"""Asks `lockstep compare` about recorded runs of trainers that are not lockstep's, and holds its answers against foreign.json.

    conformance.py --lockstep PROGRAM [--only TEXT] [--update]

foreign.tar.xz holds the runs: models of several kinds on one to eight ranks, plain, sharded, tensor- and pipeline-parallel, resumed,
in low precision, with and without declarations, each right and with a mistake. A row has the run's name, that of its reference, how many
permuted repeats of this there are, and what is said. `truth`: the right names where none of them is said. --update rewrites the rows.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).parent
ASKED = ("truth", "reference", "repeats")  # what a row says beside the answer
WORDS = {ord(" "): "-", ord(","): None, ord(":"): None}  # of a name, as a folder


def said_by(program, a, b, expected, repeats=()):
    """What the program says of the runs, in the form of its expectation, and its words; `repeats`: folders of the reference's permuted runs."""
    command = [program, "compare", a, b, "--json"]
    for repeat in repeats:
        command += ["--repeat", repeat]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "refused" in expected:
        words = expected["refused"] if expected["refused"] in done.stderr else done.stderr.strip()
        return {"name": expected["name"], "refused": words, "exit_code": done.returncode}, done.stderr
    answer = json.loads(done.stdout)
    said = {"name": expected["name"], "verdict": answer["verdict"]}
    where, cause = answer["first_divergence"], answer["cause"]
    if where:
        said |= {"step": where["step"], "phase": where["phase"]}
        for key in ("rank", "where"):
            if key in expected:
                said[key] = where[key]
    if cause:
        said["cause"] = cause["code"]
    return said, answer["sentence"]


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
