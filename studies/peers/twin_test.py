"""The twin: one process and real ranks train the same to rounding, and not with a fault; its faults are lockstep's.

    twin_test.py LOCKSTEP
"""

import pathlib
import signal
import sys
import tempfile
import unittest
import warnings

warnings.filterwarnings("ignore")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import torch  # noqa: E402

import ranks  # noqa: E402
from alone import acts_alone  # noqa: E402
from answer import found, silent  # noqa: E402
from ask_trainparity import Trainparity  # noqa: E402
from faults import FAULTS, WORKLOADS  # noqa: E402
from page import counts  # noqa: E402
from peers import Results, ask, check_names, facts_of, kept, missing_packages, not_installed  # noqa: E402
from twin import Trainer, Watch  # noqa: E402

STEPS, ROUNDING = 6, 2e-5


class First(Watch):
    """The reduced gradients of the first step."""

    def __init__(self):
        self.seen = None

    def gradients(self, t, local, reduced):
        if self.seen is None:
            self.seen = {n: g.flatten().tolist() for n, g in reduced.items()}


def trained(settings, fault=None):
    """Losses (means over ranks) and the first step's reduced gradients of each rank."""

    def work(rank):
        watch = First()
        return {"losses": Trainer(settings, rank, fault, watch).train(), "gradients": watch.seen}

    answers, logs = ranks.run(settings.world, work)
    if any(a is None for a in answers):
        raise RuntimeError("a rank failed: " + "".join(logs)[-1000:])
    losses = [sum(a["losses"][k] for a in answers) / len(answers) for k in range(settings.steps)]
    return losses, [a["gradients"] for a in answers]


def farthest(a, b):
    """The largest difference of losses, by their size, and of gradients, by the largest element."""
    (losses_a, (one,)), (losses_b, all_ranks) = a, b
    loss = max(abs(x - y) / abs(x) for x, y in zip(losses_a, losses_b))
    largest = max(abs(x) for g in one.values() for x in g)
    gradient = max(abs(x - y) for other in all_ranks for n in one for x, y in zip(one[n], other[n])) / largest
    return max(loss, gradient)


class Twin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        ranks.warm_up()
        cls.one = {name: trained(s.but(steps=STEPS)) for name, s in WORKLOADS.items()}

    def test_ranks_train_as_one_process(self):
        for name, settings in WORKLOADS.items():
            for world in (8, 2):
                with self.subTest(twin=name, ranks=world):
                    self.assertLess(farthest(self.one[name], trained(settings.but(steps=STEPS, world=world))), ROUNDING)

    def test_with_a_fault_they_do_not(self):
        for fault in ("mean_of_means", "gather_average", "batch_norm_local", "accumulation_not_scaled", "noise_by_rank"):
            with self.subTest(fault=fault):
                f = FAULTS[fault]
                other = trained(f.settings.but(steps=STEPS, world=8), f)
                self.assertGreater(farthest(self.one[f.workload], other), 10 * ROUNDING)

    def test_a_fault_of_the_exchange_does_nothing_in_one_process(self):
        self.assertFalse(acts_alone(FAULTS["gradient_sum"], FAULTS["gradient_sum"].settings))
        self.assertTrue(acts_alone(FAULTS["clip_missing"], FAULTS["clip_missing"].settings))

    def test_ranks_past_their_deadline_are_no_finding(self):
        with self.assertRaises(ranks.Late):
            ranks.run(1, lambda rank: signal.pause(), deadline_s=1)

    def test_a_rank_that_fails_is_told(self):
        def work(rank):
            if rank == 1:
                raise ValueError("planted")
            return rank

        answers, logs = ranks.run(2, work, deadline_s=200)
        self.assertIsNone(answers[1])
        self.assertIn("planted", logs[1])


class Faults(unittest.TestCase):
    program = ""

    def test_are_those_of_the_list(self):
        self.assertGreater(check_names(self.program), len(FAULTS) - 10)

    def test_a_name_counts_only_if_it_is_the_fault(self):
        fault = FAULTS["rank_missing"]
        self.assertTrue(kept({"found": True, "words": "", "code": "rank-missing"}, fault, True)["named"])
        self.assertFalse(kept({"found": True, "words": "", "code": "rank-counted-twice"}, fault, True)["named"])
        fault = FAULTS["gradients_not_zeroed"]
        self.assertTrue(kept({"found": True, "words": "x" * 500 + "zero_grad() isn't called"}, fault)["named"])
        self.assertFalse(kept({"found": True, "words": "loss differs"}, fault)["named"])


class Answers(unittest.TestCase):
    def test_a_tool_that_could_not_be_installed_is_told_with_its_error(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "missing.tsv"
            path.write_text("trainparity==0.1.0\tERROR: Requires-Python <3.12,>=3.11\n")
            version, error = missing_packages(path)["trainparity"]
        answer = not_installed(Trainparity(".", None, None), list(FAULTS.values()), version, error)
        self.assertIn("Requires-Python", answer["asked"])
        seen = counts(answer, {f.name: facts_of(f) for f in FAULTS.values()})
        self.assertEqual((seen["run"], seen["found"], seen["cannot be run"]), (0, 0, len(FAULTS)))

    def test_are_kept_one_by_one_and_asked_once(self):
        asked = []

        class Tool:
            name = title = layout = cannot_be_asked = "tool"
            asked, package = "", "torch"

            def notes(self):
                return {}

            def clean(self, workloads, seeds):
                yield "clean", lambda: asked.append("clean") or silent()

            def fault(self, fault):
                asked.append(fault.name)
                return found(3)

        with tempfile.TemporaryDirectory() as folder:
            faults = [FAULTS["rank_missing"], FAULTS["clip_missing"]]
            results = Results(pathlib.Path(folder) / "results.json", {"faults": {}}, "")
            for again in ((), (), ("clip_missing",)):
                entry = results.begin(Tool(), again, resume=True)
                ask(Tool(), faults, {}, (5,), entry, lambda: results.put("tool", entry))
            self.assertEqual(asked, ["clean", "rank_missing", "clip_missing", "clip_missing"])
            self.assertEqual(set(results.tools()["tool"]["faults"]), {"rank_missing", "clip_missing"})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("twin_test.py LOCKSTEP: the program lockstep is missing")
    Faults.program = sys.argv.pop(1)
    unittest.main()
