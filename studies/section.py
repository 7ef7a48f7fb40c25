"""docs/studies.md has a section of each study between two marks: `section.py NAME` writes it from the kept results,
`kept` reads it; `section.py NAME RESULTS` prints that of other results.

    <!-- study: NAME -->
    <!-- /study -->
"""

import importlib
import json
import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/studies.md"


def marked(name):
    return re.compile(rf"(<!-- study: {name} -->\n)(.*?)(<!-- /study -->)", re.DOTALL)


def kept(name):
    return marked(name).search(PAGE.read_text())[2]


def main():
    name, *other = sys.argv[1:]
    folder = pathlib.Path(__file__).resolve().parent / name
    sys.path.insert(0, str(folder))
    results = pathlib.Path(other[0]) if other else folder / "results.json"
    text = importlib.import_module("page").page(json.loads(results.read_text()))
    if other:
        return sys.stdout.write(text)
    new, places = marked(name).subn(lambda found: found[1] + text + found[3], PAGE.read_text())
    if not text or places != 1:
        sys.exit(f"{len(text)} characters for {places} places of {name} in {PAGE}")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
