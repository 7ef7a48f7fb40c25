"""What a program says of a pair of runs, in the form of its expectation."""

import json
import subprocess


def said_by(program, a, b, expected, repeats=()):
    """(what it says, its words); `repeats`: folders of the reference's permuted runs."""
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
