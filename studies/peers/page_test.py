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


class Page(unittest.TestCase):
    def test_is_what_the_results_make(self):
        self.assertEqual(section.kept("peers"), page.page(RESULTS), "run ci/peers --page")

    def test_changes_with_any_answer(self):
        other = copy.deepcopy(RESULTS)
        answers = other["tools"]["lockstep_layouts"]["faults"]
        fault = next(name for name, answer in answers.items() if answer.get("found"))
        answers[fault] = {"found": False}
        self.assertNotEqual(page.page(RESULTS), page.page(other))

    def test_shows_a_false_alarm(self):
        other = copy.deepcopy(RESULTS)
        clean = other["tools"]["lockstep_layouts"]["clean"]
        clean[next(name for name, answer in clean.items() if not answer.get("found"))] = {"found": True}
        self.assertNotEqual(page.page(RESULTS), page.page(other))

    def test_answers_are_of_known_tools_and_faults(self):
        self.assertGreaterEqual(len(RESULTS["faults"]), 20)
        self.assertLessEqual(set(RESULTS["tools"]), set(page.ORDER))
        for name, tool in RESULTS["tools"].items():
            self.assertLessEqual(set(tool["faults"]), set(RESULTS["faults"]), name)

    def test_misses_are_of_what_was_run(self):
        tool = {"title": "t", "faults": {"a": {"found": False}, "b": {"cannot": "one process"}, "c": {"found": True, "step": 4}}}
        facts = {n: {"first": 3} for n in "abc"}
        said = list(page.zeros({"tools": {"lockstep_equal": tool}, "faults": facts}))
        self.assertEqual(said[0], "- lockstep 8x3 / 8x3. Not found: `a`.")
        self.assertEqual(said[1], "- lockstep 8x3 / 8x3. Found at another step than the first one: `c`.")
        self.assertEqual(said[2], "- lockstep 8x3 / 8x3. Found but not named: `c` (no cause).")

    def test_tells_which_tools_have_no_answers(self):
        other = copy.deepcopy(RESULTS)
        del other["tools"]["lockstep_equal"]
        self.assertIn("No answers are kept of", page.page(other))

    def test_not_run_is_not_a_zero(self):
        seen = page.counts({"faults": {}}, {"clip_missing": {"first": 3}})
        self.assertEqual((seen["run"], seen["run, not found"], seen["not run (time)"]), (0, 0, 1))


class Kind(unittest.TestCase):
    def test_reads_answers(self):
        self.assertEqual(page.kind({"cannot": "one process"}, 3), "cannot")
        self.assertEqual(page.kind({"cannot": "not asked: time"}, 3), "unasked")
        self.assertEqual(page.kind({"found": False}, 3), "not")
        self.assertEqual(page.kind({"found": True, "named": False}, 3), "found")
        self.assertEqual(page.kind({"found": True, "named": False, "step": 3}, 3), "step")
        self.assertEqual(page.kind({"found": True, "named": False, "step": 0}, -1), "step")
        self.assertEqual(page.kind({"found": True, "named": False, "step": 4}, 3), "late")
        self.assertEqual(page.kind({"found": True, "named": True, "step": 4}, 3), "named")

    def test_counts_wrong_names(self):
        self.assertTrue(page.wrong_name({"found": True, "named": False, "code": "rank-missing"}))
        self.assertFalse(page.wrong_name({"found": True, "named": False, "code": "unexplained"}))
        self.assertFalse(page.wrong_name({"found": True, "named": True, "code": "rank-missing"}))


if __name__ == "__main__":
    unittest.main()
