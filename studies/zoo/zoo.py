"""Trainers and losses of other libraries, as scripts on one rank and on three, judged by `lockstep check`.

    zoo.py --lockstep PROGRAM [--only LIBRARY,…] [--name TEXT] [--keep FOLDER]
"""

import argparse
import importlib
import importlib.metadata
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent))
RESULTS = HERE / "results.json"

from rows import rows  # noqa: E402

LIBRARIES = {
    "transformers": "of_transformers", "accelerate": "of_accelerate", "lightning": "of_lightning", "open_clip_torch": "of_open_clip",
    "sentence-transformers": "of_sentence_transformers", "trl": "of_trl", "verl": "of_verl", "torch": "of_batch_norm",
}  # fmt: skip
WORLD = 3


def said(document):
    """Of check's JSON: {"verdict", "step", "code"}, and in `words` what it says where it names no code."""
    found = re.search(r"(?:from|at) step (\d+):? (.*)", document["headline"])
    words, items = found[2] if found else "", [fact["name"] for fact in document.get("facts", ())]
    code = words if document["verdict"] == "different" and re.fullmatch(r"[a-z0-9-]+", words) and words not in items else None
    return {"verdict": document["verdict"], "step": int(found[1]) if found else None, "code": code, "words": "" if code or document["verdict"] == "same" else words or document["headline"]}


def reading(subject, found):
    """Is the verdict right? same, named, unnamed; error, alarm, undecided, unseen, wrong step, wrong."""
    if found["verdict"] in ("error", "undecided"):
        return found["verdict"]
    if not subject.expect:
        return "same" if found["verdict"] == "same" else "alarm"
    if found["verdict"] == "same":
        return "unseen"
    if found["step"] != subject.step:
        return "wrong step"
    return "unnamed" if found["code"] is None else "named" if found["code"] in subject.expect else "wrong"


def checked(program, module, subject, folder):
    python, script = shlex.quote(sys.executable), shlex.join([str(HERE / f"{module}.py"), subject.name])
    began = time.monotonic()
    done = subprocess.run([program, "check", "--ranks", str(WORLD), "--json", "--out", str(folder), "--reference", f"{python} {script} reference",
                           "--run", f"{python} {script} run"], capture_output=True, text=True, check=False)  # fmt: skip
    try:
        found = said(json.loads(done.stdout))
    except ValueError:
        lines = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]
        found = {"verdict": "error", "step": None, "code": None, "words": (lines or ["ended without a word"])[0].removeprefix("lockstep: ")}
    return found | {"reading": reading(subject, found), "seconds": round(time.monotonic() - began, 1)}


def version_of(library):
    try:
        return importlib.metadata.version(library).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only", default="", help="libraries; the others' kept answers stay")
    parser.add_argument("--name", default="", help="only subjects whose name has this text; the others' kept answers stay")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    unknown = sorted(set(only) - set(LIBRARIES))
    if unknown:
        sys.exit(f"zoo: no library is called {', '.join(unknown)}; there are: {', '.join(LIBRARIES)}")
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    whole = {"world": WORLD, "libraries": {}, "subjects": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for library, module in LIBRARIES.items():
            facts = {"version": version_of(library) or "not installed"}
            kept = {key: each for key, each in before.get("subjects", {}).items() if key.startswith(f"{library}: ")}
            try:
                subjects = importlib.import_module(module).SUBJECTS if not only or library in only else []
            except Exception as error:  # noqa: BLE001 - a library that does not import is a row of the table
                subjects, facts["error"] = [], f"{type(error).__name__}: {error}" if version_of(library) else "could not be installed"
            if only and library not in only:
                facts = before.get("libraries", {}).get(library, facts)
                whole["subjects"] |= kept
            whole["libraries"][library] = facts
            for number, subject in enumerate(subjects):
                key = f"{library}: {subject.name}"
                if options.name not in subject.name:
                    whole["subjects"] |= {key: kept[key]} if key in kept else {}
                    continue
                found = checked(options.lockstep, module, subject, (options.keep or pathlib.Path(scratch)).resolve() / f"{module}-{number}")
                whole["subjects"][key] = {"expect": list(subject.expect), "known": subject.known} | found
                print(f"    {found['reading']:10} {key}: {found['verdict']} {found['step']} {found['code'] or found['words']} ({found['seconds']} s)", file=sys.stderr, flush=True)
    new = RESULTS.with_suffix(".new")
    new.write_text(rows(whole) + "\n")
    new.replace(RESULTS)


if __name__ == "__main__":
    main()
