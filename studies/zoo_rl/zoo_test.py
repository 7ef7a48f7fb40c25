"""Functions with planted faults on real Gloo ranks: each is read, found and named as the runner says it is, and a right one is found nothing of."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import conventions  # noqa: E402
import zoo  # noqa: E402
from subject import Subject  # noqa: E402

WHITENED = conventions.Convention("batch", False, "batch", 1, epsilon=1e-4, place="outside")


def summed(value, world):
    value = torch.as_tensor(value, dtype=torch.float64)
    if world > 1:
        dist.all_reduce(value)
    return value


def rows_of(shards):
    return torch.tensor(shards[-1][0], dtype=torch.float64)


def right(rank, world, shards, size):
    rows = rows_of(shards)
    count = summed(float(len(rows)), world)
    mean = summed(rows.sum(), world) / count
    deviation = (summed(((rows - mean) ** 2).sum(), world) / (count - 1)).sqrt()
    return ((rows - mean) / (deviation + 1e-4)).float().tolist()


def local(rank, world, shards, size):
    return right(rank, 1, shards, size)


def mean_of_means(rank, world, shards, size):
    rows = rows_of(shards)
    count = summed(float(len(rows)), world)
    true = summed(rows.sum(), world) / count
    deviation = (summed(((rows - true) ** 2).sum(), world) / (count - 1)).sqrt()
    return ((rows - summed(rows.mean(), world) / world) / (deviation + 1e-4)).float().tolist()


def not_without_rows(rank, world, shards, size):
    if not shards[-1][0]:
        raise ValueError("a rank needs rows")
    return right(rank, world, shards, size)


def leaves_the_others(rank, world, shards, size):
    if rank == 1:
        while True:
            torch.ones(1).sum()
    return right(rank, world, shards, size)


def planted(run):
    return Subject("planted", run.__name__, "", "", run)


class Runner(unittest.TestCase):
    def judged(self, run, name):
        subject = planted(run)
        read = {"one_process": {name: right(0, 1, zoo.batches_of(subject, name), 0)}, "alone": {name: None}}
        return zoo.judged(subject, read, WHITENED, name, 3)

    def test_a_right_function_is_found_nothing_of(self):
        for name in ("plain", "uneven", "empty"):
            self.assertIn(self.judged(right, name)["verdict"], ("bits", "rounding"), name)

    def test_own_statistics_are_named(self):
        found = self.judged(local, "plain")
        self.assertEqual((found["verdict"], found["named"]), ("differs", ["each rank's own mean and deviation"]))
        self.assertGreater(found["largest_difference"], 0.1)

    def test_the_mean_of_means_shows_with_uneven_rows_alone(self):
        self.assertIn(self.judged(mean_of_means, "plain")["verdict"], ("bits", "rounding"))
        found = self.judged(mean_of_means, "uneven")
        self.assertEqual((found["verdict"], found["named"]), ("differs", ["the mean of the ranks' means"]))

    def test_an_error_is_told_with_its_rank(self):
        found = self.judged(not_without_rows, "empty")
        self.assertEqual(found, {"verdict": "error", "words": "rank 1: ValueError: a rank needs rows"})

    def test_a_rank_that_does_not_come_is_a_hang(self):
        before, zoo.DEADLINE_S = zoo.DEADLINE_S, 4
        try:
            self.assertEqual(self.judged(leaves_the_others, "plain")["verdict"], "hang")
        finally:
            zoo.DEADLINE_S = before

    def test_a_planted_convention_is_read_in_a_process_of_its_own(self):
        read = zoo.reading(planted(right))
        self.assertEqual(conventions.Convention(**read["how"]), WHITENED)
        self.assertEqual(read["missing"], "all NaN")
        self.assertEqual(read["group_of_one"], "NaN")

    def test_one_that_throws_is_told(self):
        def throws(rank, world, shards, size):
            raise TypeError("an unexpected argument")

        self.assertEqual(zoo.reading(planted(throws)), {"error": "TypeError: an unexpected argument"})


class Ending(unittest.TestCase):
    def test_places_and_ports_are_left_out(self):
        log = "Traceback\n  File x\nRuntimeError: [/a/b.cc:537] Connection closed by peer [127.0.0.1]:7. This is typically caused by a crash.\n"
        self.assertEqual(zoo.ending(log), "RuntimeError: Connection closed by peer")
        self.assertEqual(zoo.ending("what(): 48 vs 36. Received data size doesn't match expected size. Is there"),
                         "Gloo ends a process: Received data size doesn't match expected size")  # fmt: skip
        self.assertEqual(zoo.ending("terminated\n"), "")


if __name__ == "__main__":
    unittest.main()
