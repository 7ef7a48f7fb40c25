"""docs/start.md, run: each command prints what stands below it, but for digits that rounding decides. `start_page.py --write` writes them."""

import os
import pathlib
import re
import subprocess
import sys

from case import Case, need

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "start.md"


def blocks(text, kind):
    return re.findall(rf"```{kind}\n(.*?)```\n", text, re.S)


def printed(lockstep, folder, command):
    environment = dict(os.environ, PATH=os.pathsep.join([os.path.dirname(lockstep), os.path.dirname(sys.executable), os.environ["PATH"]]))
    return subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def loose(text):
    return re.sub(r"\d(\.\d+)?e-\d+", "#", text)


def page(bench):
    text = PAGE.read_text()
    pathlib.Path(bench.path("train.py")).write_text(blocks(text, "python")[0])
    for block in blocks(text, "console"):
        command, _, expected = block.partition("\n")
        found = printed(bench.lockstep, bench.folder, command.removeprefix("$ "))
        need(loose(found) == loose(expected), f"{command}\nprints\n{found}\nand the page has\n{expected}")
    return ""


def write(lockstep, folder):
    text = PAGE.read_text()
    pathlib.Path(folder, "train.py").write_text(blocks(text, "python")[0])
    for block in blocks(text, "console"):
        command = block.partition("\n")[0]
        text = text.replace(f"```console\n{block}```", f"```console\n{command}\n{printed(lockstep, folder, command.removeprefix('$ '))}```")
    PAGE.write_text(text)


CASES = [Case("start page", page)]
if __name__ == "__main__":
    write(*map(os.path.abspath, sys.argv[2:4]))
