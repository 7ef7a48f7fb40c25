"""The example of probe/examples: as few lines as they promise, and the verdicts that they promise."""

import pathlib
import sys

from case import Case, code_of, environment, need
from lockstep_probe import patches

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "probe" / "examples" / "ten_lines.py"


def text_of(lines):
    text = EXAMPLE.read_text()
    begin, last = "    def step_on(", "    probe.replay(step_on)\n"
    return text if lines == 10 else text[: text.index(begin)] + text[text.index(last) + len(last) :]


def traced(bench, name, text, world, against=None, mistake=("", "")):
    """The script on ranks that are forked, and have their process group already. Its folder of traces."""
    need(mistake[0] in text, "the example has no such line")
    traces = bench.path(name + "/traces")
    code = text.replace('    dist.init_process_group("gloo")\n', "").replace("    dist.destroy_process_group()\n", "").replace(*mistake)

    def program(_run):
        sys.argv = ["train.py", "--batch", str(24 // world)]
        exec(compile(code, "train.py", "exec"), {"__name__": "__main__"})  # noqa: S102
        for probe in patches.probes():
            probe.finish()

    with environment(LOCKSTEP_TRACE=traces, LOCKSTEP_AGAINST=against):
        bench.run(program, world, name)
    return traces


def three_lines(bench):
    text = text_of(3)
    body = text.split('"""', 2)[2]
    lines = [line for line in body.splitlines() if "probe" in line]
    need(len(lines) == 4 and lines[0] == "import lockstep_probe", f"{len(lines)} lines with the probe: {lines}")
    need(len(body.strip().splitlines()) <= 60, f"{len(body.strip().splitlines())} lines in all")
    one, eight = traced(bench, "one", text, 1), traced(bench, "eight", text, 8)
    found = bench.compare(one, eight)
    need(found["verdict"] in ("within_envelope", "inconclusive"), found["sentence"])
    wrong = traced(bench, "wrong", text, 8, mistake=("loss.backward()", "(loss * 8).backward()"))
    named = bench.compare(one, wrong)
    need(named["verdict"] == "divergent" and code_of(named) == "gradient-times-world", named["sentence"])
    return "3 lines and the import"


def ten_lines(bench):
    text = text_of(10)
    added = text.count("\n") - text_of(3).count("\n")
    need(added <= 7, f"{added} lines more than three")
    one = traced(bench, "one", text, 1)
    eight = traced(bench, "eight", text, 8, against=one)
    found = bench.compare(one, eight)
    need(found["verdict"] == "within_envelope" and "float64" in found["sentence"], found["sentence"])
    return f"{3 + added} lines"


CASES = [Case("example: three lines", three_lines), Case("example: ten lines", ten_lines)]
