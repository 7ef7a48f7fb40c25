"""The example of probe/examples: as few lines as it promises, and the verdicts that it promises."""

import pathlib
import sys

from case import Case, code_of, environment, need
from lockstep_probe import patches

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "probe" / "examples" / "three_lines.py"


def traced(bench, name, text, world, mistake=("", "")):
    """The script on ranks that are forked, and have their process group already. Its folder of traces."""
    need(mistake[0] in text, "the example has no such line")
    traces = bench.path(name + "/traces")
    code = text.replace('    dist.init_process_group("gloo")\n', "").replace("    dist.destroy_process_group()\n", "").replace(*mistake)

    def program(_run):
        sys.argv = ["train.py", "--batch", str(24 // world)]
        exec(compile(code, "train.py", "exec"), {"__name__": "__main__"})  # noqa: S102
        for probe in patches.probes():
            probe.finish()

    with environment(LOCKSTEP_TRACE=traces):
        bench.run(program, world, name)
    return traces


def three_lines(bench):
    text = EXAMPLE.read_text()
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


CASES = [Case("example: three lines", three_lines)]
