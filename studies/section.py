"""docs/studies.md has a section of each study between two marks: `page.py | section.py NAME` writes it, `kept` reads it.

    <!-- study: NAME -->
    <!-- /study -->
"""

import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/studies.md"


def marked(name):
    return re.compile(rf"(<!-- study: {name} -->\n)(.*?)(<!-- /study -->)", re.DOTALL)


def kept(name):
    return marked(name).search(PAGE.read_text())[2]


def main():
    (name,) = sys.argv[1:]
    text = sys.stdin.read()
    new, places = marked(name).subn(lambda found: found[1] + text + found[3], PAGE.read_text())
    if not text or places != 1:
        sys.exit(f"{len(text)} characters for {places} places of {name} in {PAGE}")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
