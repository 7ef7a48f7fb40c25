"""Planted conventions are read off as what they are, and what is none of the known forms is called unknown; so are planted mistakes of ranks."""

import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import conventions  # noqa: E402
import layouts  # noqa: E402
from conventions import Convention  # noqa: E402


def planted(how, before=()):
    """A function with this convention, in float32 at its ends as the libraries' are."""
    return lambda rewards, groups: [conventions.single(v) for v in conventions.predict(how, rewards, groups, before)]


def rewards_and_groups(rows=24, size=4, seed=3):
    draw = random.Random(seed)
    means = [draw.gauss(0, 1) for _ in range(rows // size)]
    return [conventions.single(means[i // size] + draw.gauss(0, 1)) for i in range(rows)], [i // size for i in range(rows)]


GROUPED = [
    Convention("group", False, "group", 1, epsilon=1e-4, place="outside"),
    Convention("group", False, "group", 0, epsilon=1e-6, place="outside"),
    Convention("group", False, "group", 1, epsilon=1e-8, place="inside"),
    Convention("group", False, "group", 1, epsilon=1e-3, place="floor"),
    Convention("group", False, "batch", 1, epsilon=1e-4, place="outside"),
    Convention("group", False, "batch of the centred", 0, epsilon=1e-8, place="floor"),
    Convention("group", True, "batch of the centred", 1, epsilon=1e-4, place="outside"),
    Convention("group", False, "group, then batch", 1, epsilon=1e-4, place="outside"),
    Convention("group", False, "none"),
    Convention("group", True, "none"),
    Convention("batch", False, "none"),
    Convention("none", False, "none"),
]
WHOLE = [
    Convention("batch", False, "batch", 1, epsilon=1e-8, place="outside"),
    Convention("batch", False, "batch", 0, epsilon=1e-2, place="outside"),
    Convention("batch", False, "batch", 1, epsilon=1e-8, place="inside"),
    Convention("batch", False, "batch", 0, epsilon=1e-5, place="inside", clamp=5.0),
    Convention("batch", False, "batch", 0, prior=1, epsilon=1e-5, place="inside", clamp=5.0),
    Convention("batch", False, "batch", 0, epsilon=1e-4, place="floor"),
    Convention("none", False, "batch", 1, epsilon=1e-3, place="outside"),
]


class Read(unittest.TestCase):
    def test_planted_conventions_of_groups(self):
        for how in GROUPED:
            self.assertEqual(conventions.read(planted(how), True)[0], how, how.words())

    def test_planted_conventions_of_batches(self):
        for how in WHOLE:
            self.assertEqual(conventions.read(planted(how), False)[0], how, how.words())

    def test_no_epsilon(self):
        found, _ = conventions.read(planted(Convention("batch", False, "batch", 1)), False)
        self.assertEqual((found.place, found.epsilon, found.unread_below), ("none", 0.0, 0.0))

    def test_an_epsilon_that_a_prior_hides_is_not_called_absent(self):
        found, _ = conventions.read(planted(Convention("batch", False, "batch", 1, prior=1, epsilon=1e-8, place="outside")), False)
        self.assertEqual((found.place, found.prior), ("none", 1))
        self.assertGreater(found.unread_below, 1e-3)
        self.assertIn("no ε at deviations above", found.words())

    def test_unknown_forms_are_called_unknown(self):
        def median(rewards, groups):
            middle = sorted(rewards)[len(rewards) // 2]
            return [r - middle for r in rewards]

        def ranks(rewards, groups):
            order = sorted(rewards)
            return [order.index(r) / len(order) - 0.5 for r in rewards]

        def mean_absolute(rewards, groups):
            _, mean, _ = conventions.moments(rewards, 0)
            below = math.fsum(abs(r - mean) for r in rewards) / len(rewards)
            return [(r - mean) / below for r in rewards]

        def slightly_off(rewards, groups):
            return [1.001 * v for v in conventions.predict(WHOLE[0], rewards, groups)]

        for function in (median, ranks, mean_absolute, slightly_off):
            for grouped in (False, True):
                found, why = conventions.read(function, grouped)
                self.assertIsNone(found, function.__name__)
                self.assertEqual(why, "none of the known forms")

    def test_an_epsilon_at_no_known_place_is_not_read(self):
        def cubed(rewards, groups):
            _, mean, variance = conventions.moments(rewards, 1)
            return [(r - mean) / (variance**1.5 + 1e-9) ** (1 / 3) for r in rewards]

        found, _ = conventions.read(cubed, False)
        self.assertEqual((found.scale, found.ddof, found.place), ("batch", 1, "unread"))
        self.assertIn("ε not read", found.words())

    def test_words_say_each_part(self):
        self.assertEqual(GROUPED[0].words(), "(r − group mean) / group std, ddof 1, + 0.0001")
        running = "(r − batch mean) / batch std, ddof 0, ε 1e-05 inside the root; a prior of 1 row (mean 0, variance 1); clamped to ±5"
        self.assertEqual(WHOLE[4].words(), running)
        self.assertEqual(GROUPED[9].words(), "r − mean of the group's others")


class Edges(unittest.TestCase):
    how = GROUPED[0]

    def one(self, value):
        return conventions.group_of_one(lambda rewards, groups: [value(rewards[0])] * len(rewards), self.how, True)

    def test_a_group_of_one(self):
        self.assertEqual(self.one(lambda r: 0.0), "0")
        self.assertEqual(self.one(lambda r: r), "the raw reward")
        self.assertEqual(self.one(lambda r: math.nan), "NaN")
        self.assertEqual(self.one(lambda r: 2.0), "2 for 3")

    def test_a_group_of_one_that_throws(self):
        def throws(rewards, groups):
            raise ValueError("a group needs two rows")

        self.assertEqual(conventions.group_of_one(throws, self.how, True), "error: a group needs two rows")

    def missing(self, left_out, own):
        def function(rewards, groups):
            bad = [i for i, r in enumerate(rewards) if r != r]
            kept = [i for i in range(len(rewards)) if i not in bad]
            values = [own] * len(rewards)
            given = kept if left_out else range(len(rewards))
            out = conventions.predict(self.how, [0.0 if i in bad else rewards[i] for i in given], [groups[i] for i in given])
            for i, v in zip(given, out):
                values[i] = own if i in bad else v
            return values

        return conventions.missing_reward(function, self.how, True)

    def test_a_missing_reward(self):
        self.assertEqual(self.missing(True, 0.0), "its row 0, the others as if it were not there")
        self.assertEqual(self.missing(False, 0.0), "its row 0, the others as if it were 0")
        self.assertEqual(self.missing(True, math.nan), "its row NaN, the others as if it were not there")
        self.assertEqual(conventions.missing_reward(lambda r, g: [math.nan] * len(r), self.how, True), "all NaN")

    def test_a_missing_reward_that_spoils_its_group(self):
        def function(rewards, groups):
            bad = {g for r, g in zip(rewards, groups) if r != r}
            return [math.nan if g in bad else 1.0 for g in groups]

        self.assertEqual(conventions.missing_reward(function, self.how, True), "its group NaN")


BATCH, GROUP = WHOLE[0], GROUPED[0]


class Layouts(unittest.TestCase):
    counts = [3, 14, 7]

    def setUp(self):
        self.rewards, self.groups = rewards_and_groups()
        self.batches = [(self.rewards, [0] * 24)]

    def moments(self, ddof=1):
        return [conventions.moments(part, ddof) for part in layouts.cut(self.rewards, self.counts)]

    def normalised(self, mean, deviation):
        return [conventions.single((r - mean) / (deviation + BATCH.epsilon)) for r in self.rewards]

    def named(self, seen, how=BATCH, batches=None):
        return layouts.explain(how, batches or self.batches, self.counts, seen)

    def test_the_right_values_are_named_nothing_and_judged_bits(self):
        right = planted(BATCH)(self.rewards, [0] * 24)
        self.assertEqual(layouts.judge(BATCH, self.batches, right, right), {"verdict": "bits"})

    def test_rounding_is_told_from_a_difference(self):
        right = planted(BATCH)(self.rewards, [0] * 24)
        rounded = [conventions.single(v * (1 + 2**-22)) for v in right]
        self.assertEqual(layouts.judge(BATCH, self.batches, right, rounded)["verdict"], "rounding")
        self.assertEqual(layouts.judge(BATCH, self.batches, right, [v * 1.001 for v in right])["verdict"], "differs")
        self.assertEqual(layouts.judge(BATCH, self.batches, right, right[:-1])["verdict"], "differs")
        self.assertEqual(layouts.judge(BATCH, self.batches, right, [math.nan, *right[1:]])["verdict"], "differs")

    def test_own_mean_and_deviation(self):
        parts = zip(self.moments(), layouts.cut(self.rewards, self.counts))
        seen = [conventions.single((r - m) / (math.sqrt(v) + BATCH.epsilon)) for (_, m, v), rows in parts for r in rows]
        self.assertEqual(self.named(seen), ["each rank's own mean and deviation"])

    def test_own_mean_alone_and_own_deviation_alone(self):
        _, mean, variance = conventions.moments(self.rewards, 1)
        parts = list(zip(self.moments(), layouts.cut(self.rewards, self.counts)))
        own_mean = [(r - m) / math.sqrt(variance) for (_, m, _), rows in parts for r in rows]
        own_deviation = [(r - mean) / math.sqrt(v) for (_, _, v), rows in parts for r in rows]
        self.assertEqual(self.named(own_mean), ["each rank's own mean"])
        self.assertEqual(self.named(own_deviation), ["each rank's own deviation"])

    def test_moments_merged_wrongly(self):
        _, _, variance = conventions.moments(self.rewards, 1)
        own = self.moments(0)
        of_means = sum(m for _, m, _ in own) / 3
        self.assertEqual(self.named(self.normalised(of_means, math.sqrt(variance))), ["the mean of the ranks' means"])

    def test_groups_cut(self):
        self.counts = [6, 6, 12]
        cut = zip(layouts.cut(self.rewards, self.counts), layouts.cut(self.groups, self.counts))
        seen = [v for rows, groups in cut for v in conventions.predict(GROUP, rows, groups)]
        self.assertEqual(self.named(seen, GROUP, [(self.rewards, self.groups)]), ["groups cut at the ranks' borders"])

    def test_other_rows(self):
        right = planted(GROUP)(self.rewards, self.groups)
        self.counts = [8, 9, 7]
        seen = right[0:8] + right[9:18] + right[14:21]
        self.assertEqual(self.named(seen, GROUP, [(self.rewards, self.groups)]), ["the advantages of other rows (rank × own rows as offset)"])

    def test_histories(self):
        how = Convention("batch", False, "batch", 0, prior=1, epsilon=1e-5, place="inside")
        batches = [(rewards_and_groups(seed=s)[0], [0] * 24) for s in (5, 6, 7)]
        shards = [layouts.cut(rows, self.counts) for rows, _ in batches]
        own = [v for r in range(3) for v in conventions.predict(how, shards[2][r], [0] * self.counts[r], [shards[0][r], shards[1][r]])]
        self.assertEqual(self.named(own, how, batches), ["each rank's own history"])

    def test_what_is_no_known_mistake_is_named_nothing(self):
        right = planted(BATCH)(self.rewards, [0] * 24)
        self.assertEqual(self.named([v + 0.1 for v in right]), [])
        self.assertEqual(layouts.explain(None, self.batches, self.counts, right), [])

    def test_rows_of_no_rank(self):
        self.counts = [12, 0, 12]
        self.assertEqual(self.named([math.nan] * 24), ["the moments of no rows (0/0) reach every rank"])
        self.counts = [12, 6, 6]
        self.assertEqual(self.named([math.nan] * 24), [])

    def test_not_scaled(self):
        _, mean, _ = conventions.moments(self.rewards, 1)
        self.assertEqual(self.named([r - mean for r in self.rewards]), ["not scaled at all"])

    def test_a_guess_that_is_one_process_explains_nothing(self):
        how = Convention("none", False, "none")
        self.assertEqual(self.named([r * (1 + 3e-5) for r in self.rewards], how), [])

    def test_rows_by_themselves_are_named_by_the_convention(self):
        seen = [math.nan] + [1.0] * 23
        self.assertEqual(layouts.explain(BATCH, self.batches, self.counts, seen, list(seen)), ["each rank's own mean and deviation"])

    def test_an_unknown_convention_can_still_be_each_rank_alone(self):
        values = [float(i) for i in range(24)]
        self.assertEqual(layouts.explain(None, self.batches, self.counts, values, list(values)), ["as if each rank were alone"])

    def test_sign_flips(self):
        self.assertEqual(layouts.flipped([1.0, -1.0, 2.0, 0.0], [1.0, 1.0, 2.0, 5.0]), 1 / 3)

    def test_deals(self):
        for rows, world in ((48, 3), (48, 8)):
            self.assertEqual(sum(layouts.uneven(rows, world)), rows)
            self.assertGreater(min(layouts.uneven(rows, world)), 0)
            self.assertGreater(len(set(layouts.uneven(rows, world))), 1)
            self.assertEqual(sum(layouts.one_empty(rows, world)), rows)
            self.assertEqual(layouts.one_empty(rows, world)[1], 0)


if __name__ == "__main__":
    unittest.main()
