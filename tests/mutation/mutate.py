#!/usr/bin/env python3
"""Changes the code that gives verdicts, one place at a time, and asks whether some test notices.

    mutate.py BUILD [--count N] [--seed N] [--jobs N] [--out FILE] [FILE ...]

BUILD is a configured and built folder of CMake and Ninja with its files compiled one by one (preset dev). Each mutant is compiled
beside the tree and linked before the library that holds the right file: neither the sources nor the build change. A mutant is
killed if it fails a test, crashes or does not end; it survives if the tests of its rooms, those of real runs and the exam of
foreign runs pass; one that does not compile is left out. Prints a line a mutant and the survivors; exit 0 if at least the asked
share was killed.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The comparison itself, and what finds differences in one run's own evidence.
JUDGED = ["harness/judge/compare/*.cpp", "harness/judge/compare/forced/*.cpp", "harness/judge/evidence/ledger.cpp",
          "harness/judge/evidence/replicas.cpp", "harness/judge/evidence/parts.cpp"]
# Tests of these rooms run first; what survives them meets real runs.
ROOMS = ["judge/compare", "judge/causes", "judge/evidence", "answer/questions", "answer/results", "cli"]
REAL_RUNS = "Verdicts*:Forced*:ExactArithmetic*:*ExactFault*"

SWAPS = {" < ": " >= ", " >= ": " < ", " <= ": " > ", " > ": " <= ", " == ": " != ", " != ": " == ", " && ": " || ", " || ": " && "}
CONSTANT = re.compile(r"(constexpr double k\w+ = )([0-9][0-9.e+-]*)(;)")
PHASE = re.compile(r"\bjudge_[a-z_]+, |&StepComparison::[a-z_]+,\s*|&BoundedStep::[a-z_]+, ")
EARLY = re.compile(r"^(\s+)if \(.*\) (return\b[^;]*|continue);$")


def mutants_of(path):
    """(line, operator, text of the changed line) for each place of the file."""
    found = []
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        code = line.split("//")[0]
        if line.lstrip().startswith(("//", "#", "template", "///")):
            continue
        for old, new in SWAPS.items():
            if "<<" in code or "template <" in code:
                continue
            for at in (m.start() for m in re.finditer(re.escape(old), code)):
                found.append((number, f"{old.strip()} becomes {new.strip()}", line[:at] + new + line[at + len(old):]))
        if m := CONSTANT.search(code):
            found.append((number, f"{m[2]} becomes 1000 times that", line[:m.start()] + f"{m[1]}1000 * {m[2]}{m[3]}" + line[m.end():]))
        for m in PHASE.finditer(code):
            found.append((number, f"{m[0].strip(' ,')} is dropped", line[:m.start()] + line[m.end():]))
        if m := EARLY.match(line):
            found.append((number, "the line is dropped", ""))
    return found


def drawn(files, count, seed):
    every = [(path, *mutant) for path in files for mutant in mutants_of(path)]
    return len(every), sorted(every, key=lambda m: hashlib.sha256(f"{seed} {m}".encode()).digest())[:count]


class Build:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        commands = json.loads((self.folder / "compile_commands.json").read_text())
        self.compile = {str(pathlib.Path(c["file"]).resolve()): c["command"] for c in commands}
        self.link = {}
        for program in ("unit_test", "torch_test", "lockstep"):
            lines = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", program], capture_output=True, text=True, check=True)
            self.link[program] = next(l for l in reversed(lines.stdout.splitlines()) if f"bin/{program}" in l)

    def compiled(self, path, text, into):
        source = into / pathlib.Path(path).name
        source.write_text(text)
        words = shlex.split(self.compile[str(ROOT / path)])
        words = [str(source) if w == str(ROOT / path) else w for w in words if w != "ccache" and w != "-Werror" and w != "-Winvalid-pch"]
        # What a mutant reads beyond a container's end, or of an empty optional, ends it.
        words.insert(1, "-D_GLIBCXX_ASSERTIONS")
        words[words.index("-o") + 1] = str(into / "mutant.o")
        for flag in ("-MF", "-MT"):
            if flag in words:
                words[words.index(flag) + 1] = str(into / "mutant.d")
        return subprocess.run(words, cwd=self.folder, capture_output=True).returncode == 0

    def linked(self, program, into):
        """Beside the right program: tests look for what stands there."""
        linked = self.folder / "bin" / f"{into.name}-{program}"
        command = self.link[program].replace(f"-o bin/{program}", f"{into}/mutant.o -o {linked}")
        command = re.sub(r"^: && |&& :$|&& cd .*$", "", command)
        done = subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"cannot link {program}: {done.stderr[-2000:]}")
        return linked


def suites_of(rooms):
    names = set()
    for room in rooms:
        for path in (ROOT / "tests/harness" / room).glob("*.cpp"):
            names |= set(re.findall(r"\bTEST(?:_F|_P)?\((\w+),", path.read_text()))
    return ":".join(f"*{name}.*" for name in sorted(names - {"EvidenceSubsets"}))


def failed_test(program, tests, folder):
    """Its name; empty if all pass."""
    try:
        done = subprocess.run([program, f"--gtest_filter={tests}", "--gtest_fail_fast", "--gtest_brief=1"],
                              cwd=folder, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "it does not end"
    if done.returncode == 0:
        return ""
    failed = re.search(r"\[  FAILED  \] (\S+)", done.stdout)
    return failed[1] if failed else f"exit {done.returncode}"


def passes_exam(program):
    """What the program says of the recorded runs of tests/conformance."""
    exam = [sys.executable, str(ROOT / "tests/conformance/conformance.py"), "--lockstep", str(program)]
    return subprocess.run(exam, capture_output=True).returncode == 0


def judged(build, mutant, stages):
    path, number, _, changed = mutant
    lines = (ROOT / path).read_text().splitlines()
    lines[number - 1] = changed
    with tempfile.TemporaryDirectory(prefix="lockstep-mutant-") as name:
        into = pathlib.Path(name)
        if not build.compiled(path, "\n".join(lines) + "\n", into):
            return None
        linked = {}
        try:
            for program, tests in stages:
                linked[program] = build.linked(program, into)
                if killer := failed_test(linked[program], tests, build.folder):
                    return killer
            linked["lockstep"] = build.linked("lockstep", into)
            return "" if passes_exam(linked["lockstep"]) else "the exam of foreign runs"
        finally:
            for path in linked.values():
                path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.0, help="share that must be killed")
    parser.add_argument("--out", help="a table of all mutants (Markdown)")
    asked = parser.parse_args()
    files = asked.files or sorted({str(p.relative_to(ROOT)) for pattern in JUDGED for p in ROOT.glob(pattern)})
    build = Build(asked.build)
    places, mutants = drawn(files, asked.count, asked.seed)
    stages = [("unit_test", suites_of(ROOMS)), ("torch_test", REAL_RUNS)]
    for program, tests in stages:
        if failed := failed_test(build.folder / "bin" / program, tests, build.folder):
            sys.exit(f"{failed} fails without any change")
    if not passes_exam(build.folder / "bin/lockstep"):
        sys.exit("the exam of foreign runs fails without any change")
    print(f"{places} places of {len(files)} files can be changed; {len(mutants)} are drawn", flush=True)
    began, table, killed, survived = time.monotonic(), [], 0, []
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        runs = {pool.submit(judged, build, m, stages): m for m in mutants}
        for run in concurrent.futures.as_completed(runs):
            path, number, what, _ = runs[run]
            killer = run.result()
            told = "does not compile" if killer is None else f"killed by {killer}" if killer else "SURVIVES"
            killed += bool(killer)
            if killer == "":
                survived.append(f"{path}:{number}: {what}")
            table.append(f"| {path}:{number} | {what} | {told} |")
            print(f"{path}:{number}: {what}: {told}", flush=True)
    judged_count = killed + len(survived)
    share = killed / judged_count if judged_count else 0.0
    print(f"\n{killed} of {judged_count} mutants were killed ({100 * share:.0f} %) in {time.monotonic() - began:.0f} s; survivors:")
    print("\n".join(f"  {line}" for line in sorted(survived)) or "  none")
    if asked.out:
        pathlib.Path(asked.out).write_text("| place | change | test |\n|---|---|---|\n" + "\n".join(sorted(table)) + "\n")
    return 0 if share >= asked.least else 1


if __name__ == "__main__":
    sys.exit(main())
