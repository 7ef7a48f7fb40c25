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
FIRST = next(key for key, entry in RESULTS["subjects"].items() if "0" in entry["lines"] and "error" not in entry["lines"]["0"])


class Page(unittest.TestCase):
    def test_is_what_the_results_make(self):
        self.assertEqual(section.kept("zoo"), page.page(RESULTS), "run ci/zoo --page")

    def test_changes_with_a_verdict(self):
        other = copy.deepcopy(RESULTS)
        other["subjects"][FIRST]["lines"]["0"] |= {"verdict": "divergent", "code": "planted-code", "step": 7, "phase": "loss", "reading": "alarm"}
        self.assertIn("**false alarm**: `planted-code`, step 7, loss", page.page(other))

    def test_changes_with_a_factor(self):
        other = copy.deepcopy(RESULTS)
        other["subjects"][FIRST]["initial"] = {"all": {"ratio": 4.25, "cos": 1.0, "off": 3.25}}
        self.assertIn("× 4.25", page.page(other))

    def test_every_library_has_a_row_or_a_reason(self):
        text = page.page(RESULTS)
        for name, facts in RESULTS["libraries"].items():
            self.assertIn(name, text)
            if "error" in facts:
                self.assertIn(facts["error"], text)

    def test_a_library_that_cannot_be_installed_is_named(self):
        other = copy.deepcopy(RESULTS)
        other["libraries"]["planted"] = {"version": "not installed", "error": "could not be installed"}
        self.assertIn("| planted not installed | cannot be run: could not be installed |", page.page(other))

    def test_totals_count_every_run_once(self):
        for way in page.WAYS:
            runs = sum(way in entry["lines"] for entry in RESULTS["subjects"].values())
            self.assertEqual(sum(page.count(RESULTS, way, how) for how in page.READINGS), runs)

    def test_whatever_is_wrong_is_listed(self):
        faults = sum(page.count(RESULTS, way, how) for way in page.WAYS for how in ("alarm", "wrong", "wrong step", "unseen", "failed"))
        self.assertEqual(len(list(page.wrong(RESULTS))), faults)

    def test_names_no_place_of_a_machine(self):
        for word in ("/tmp/", "/work/", "/home/", "/root/"):
            self.assertNotIn(word, (HERE / "results.json").read_text())


class Cell(unittest.TestCase):
    def test_reads_factors(self):
        self.assertEqual(page.factor({"ratio": 1.0, "cos": 1.0, "off": 2e-7}), "exact")
        self.assertEqual(page.factor({"ratio": 0.333333, "cos": 1.0, "off": 0.67}), "× 0.3333")
        self.assertEqual(page.factor({"ratio": 0.37, "cos": 0.86, "off": 0.67}), "off by 67 %")
        self.assertEqual(page.factor({"ratio": 0.0, "cos": None}), "none")

    def test_groups_that_are_alike_share_a_word(self):
        exact, third = {"ratio": 1.0, "cos": 1.0, "off": 0.0}, {"ratio": 1 / 3, "cos": 1.0, "off": 2 / 3}
        self.assertEqual(page.gradient({"a": exact, "b": exact}), "exact")
        self.assertEqual(page.gradient({"a": exact, "b": third}), "a: exact; b: × 0.3333")
        self.assertEqual(page.gradient(None), "–")

    def test_reads_verdicts(self):
        found = {"verdict": "divergent", "code": "mean-of-means", "step": 0, "phase": "loss"}
        self.assertEqual(page.judged(found | {"reading": "named"}), "`mean-of-means`, step 0, loss")
        self.assertEqual(page.judged(found | {"reading": "wrong"}), "**wrong name**: `mean-of-means`, step 0, loss")
        self.assertEqual(page.judged({"verdict": "within_envelope", "reading": "quiet"}), "within envelope")
        self.assertEqual(page.judged({"verdict": "inconclusive", "reading": "unseen"}), "inconclusive (**not seen**)")
        self.assertEqual(page.judged({"error": "words"}), "error")
        self.assertEqual(page.judged(None), "–")

    def test_a_pipe_does_not_split_a_row(self):
        self.assertEqual(page.row(["a|b"]), "| a\\|b |")


if __name__ == "__main__":
    unittest.main()
