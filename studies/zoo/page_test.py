"""Its section of docs/studies.md is what the generator makes of the kept results."""

import copy
import json
import pathlib
import sys
import unittest

sys.path[:0] = map(str, pathlib.Path(__file__).parents[:2])

import page  # noqa: E402
import section  # noqa: E402

HERE = pathlib.Path(__file__).parent
RESULTS = json.loads((HERE / "results.json").read_text())


class Page(unittest.TestCase):
    def test_is_what_the_results_make(self):
        self.assertEqual(section.kept("zoo"), page.page(RESULTS), "run ci/zoo --page")

    def test_changes_with_a_verdict(self):
        other = copy.deepcopy(RESULTS)
        next(iter(other["subjects"].values())).update(verdict="different", code="planted-code", step=7, reading="alarm")
        self.assertIn("**different from step 7**: `planted-code`", page.page(other))

    def test_a_library_that_cannot_be_installed_is_named(self):
        other = copy.deepcopy(RESULTS)
        other["libraries"]["planted"] = {"version": "not installed", "error": "could not be installed"}
        self.assertIn("| planted not installed | cannot be run: could not be installed |", page.page(other))

    def test_every_reading_is_counted(self):
        self.assertLessEqual({entry["reading"] for entry in RESULTS["subjects"].values()}, set(page.READINGS))

    def test_names_no_place_of_a_machine(self):
        for word in ("/tmp/", "/work/", "/home/", "/root/"):
            self.assertNotIn(word, (HERE / "results.json").read_text())

    def test_a_pipe_does_not_split_a_row(self):
        self.assertEqual(page.row(["a|b"]), "| a\\|b |")


if __name__ == "__main__":
    unittest.main()
