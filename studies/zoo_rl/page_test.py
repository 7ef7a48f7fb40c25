"""Its section of docs/studies.md is what the generator makes of the kept results, and the generator reads them as it says."""

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
FIRST = next(key for key, entry in RESULTS["subjects"].items() if "error" not in entry)


class Page(unittest.TestCase):
    def test_is_what_the_results_make(self):
        self.assertEqual(section.kept("zoo_rl"), page.page(RESULTS), "run ci/zoo_rl --page")

    def test_changes_with_any_verdict(self):
        for name in ("plain", "uneven", "empty"):
            other = copy.deepcopy(RESULTS)
            other["subjects"][FIRST][name] = {"verdict": "hang", "words": "planted"}
            self.assertNotEqual(page.page(RESULTS), page.page(other), name)

    def test_changes_with_a_convention(self):
        other = copy.deepcopy(RESULTS)
        other["subjects"][FIRST]["words"] = "unknown: planted"
        self.assertIn("unknown: planted", page.page(other))

    def test_every_library_has_a_row_or_a_reason(self):
        text = "\n".join(page.table(RESULTS))
        for name, facts in RESULTS["libraries"].items():
            self.assertIn(name, text)
            if "error" in facts:
                self.assertIn(facts["error"], text)

    def test_a_function_that_throws_says_so(self):
        other = copy.deepcopy(RESULTS)
        other["subjects"][FIRST] = {"error": "planted words"}
        self.assertIn("cannot be run: planted words", page.page(other))

    def test_functions_with_the_same_results_share_a_row(self):
        first = copy.deepcopy(RESULTS["subjects"][FIRST])
        other = copy.deepcopy(first)
        self.assertEqual(len(list(page.table({"subjects": {"a": first, "b": other}, "libraries": {}}))), 3)
        other = other | {"words": "another convention"}
        self.assertEqual(len(list(page.table({"subjects": {"a": first, "b": other}, "libraries": {}}))), 4)

    def test_totals_count_every_function_once(self):
        for name in ("plain", "uneven", "empty"):
            each = [page.count(RESULTS, name, verdict) for verdict in ("bits", "rounding", "differs", "error", "hang")]
            self.assertEqual(sum(each), len(page.asked(RESULTS)))

    def test_first_is_one_table(self):
        lines = page.page(RESULTS).splitlines()
        self.assertTrue(next(line for line in lines if line.startswith(("|", "- ", "## "))).startswith("| function"))


class Cell(unittest.TestCase):
    def test_reads_verdicts(self):
        self.assertEqual(page.cell(None), "–")
        self.assertEqual(page.cell({"verdict": "bits"}), "same bits")
        self.assertEqual(page.cell({"verdict": "rounding", "ulp": 2.0}), "rounding")
        self.assertEqual(page.cell({"verdict": "hang", "words": "w"}), "**hang**")
        self.assertEqual(page.cell({"verdict": "error", "words": "rank 1: IndexError: w"}), "**error** on rank 1")
        self.assertEqual(page.cell({"verdict": "error", "words": "Gloo ends a process: w"}), "**error**: Gloo ends a process")
        self.assertEqual(page.cell({"verdict": "rounding", "ulp": 2e6, "largest_difference": 0.4}), "rounding, by 0.4")
        self.assertEqual(page.cell({"verdict": "differs", "largest_difference": 0.5, "named": ["a", "b"]}), "**differs** by 0.5: a = b")
        self.assertEqual(page.cell({"verdict": "differs", "largest_difference": 0.5, "named": []}), "**differs** by 0.5: not explained")
        self.assertEqual(page.cell({"verdict": "differs", "words": "6 of 48 values NaN"}), "**differs**: 6 of 48 values NaN: not explained")

    def test_a_pipe_does_not_split_a_row(self):
        self.assertEqual(page.row(["a|b"]), "| a\\|b |")


if __name__ == "__main__":
    unittest.main()
