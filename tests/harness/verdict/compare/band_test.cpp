// A real prefix whose bits part from the emulated run's: another order of its sums, or something else?

#include "harness/verdict/compare/band.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/verdict/compare/compare.h"
#include "harness/verdict/trace/trace_error.h"
#include "tests/support/fake_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::FakeRun;
using support::FakeStep;
using support::tensor_of;
using testing::HasSubstr;

constexpr int64_t kSteps = 6;

FakeRun bare() {
  FakeRun run;
  run.steps = support::steps_up_to(kSteps);
  run.level = TraceLevel::full;
  return run;
}

/// Reduced gradients are the means of the ranks' own, added in that order; ranks that it lacks are left out.
void reduce_in_order(FakeStep& it, const std::vector<int>& order) {
  std::vector<FakeStep> ranks;
  for (int rank = 0; rank < it.world_size; ++rank) ranks.push_back(support::fake_step(bare(), it.step, rank));
  for (auto& [name, reduced] : it.reduced_gradients) {
    std::ranges::fill(reduced, 0.0F);
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      for (const int rank : order) reduced[i] += tensor_of(ranks[static_cast<std::size_t>(rank)].local_gradients, name)[i] / 3.0F;
    }
  }
}

FakeRun run_in_order(const std::vector<int>& order) {
  FakeRun run = bare();
  run.fault = [order](FakeStep& it) { reduce_in_order(it, order); };
  return run;
}

class Band : public testing::Test {
 protected:
  Certification hold(const FakeRun& emulated, const FakeRun& real) {
    support::write_fake_run(folder_ / "forced", emulated);
    support::write_fake_run(folder_ / "real", real);
    return hold_to_band({folder_ / "real", folder_ / "forced", nullptr, kSteps});
  }
  const TempFolder folder_;
};

TEST_F(Band, HoldsSumsThatAreAddedInAnotherOrder) {
  const Certification result = hold(run_in_order({0, 1, 2}), run_in_order({2, 0, 1}));
  EXPECT_TRUE(certify(folder_ / "forced", folder_ / "real", kSteps).divergence) << "bits part";
  EXPECT_FALSE(result.divergence) << result.divergence->sentence;
  EXPECT_EQ(result.steps, kSteps);
  EXPECT_EQ(result.certify, kByBand);
  EXPECT_GT(result.band_used, 0);
  EXPECT_LE(result.band_used, 1);
}

TEST_F(Band, NamesTheRankWhosePartIsMissing) {
  FakeRun real = bare();
  real.fault = [](FakeStep& it) { reduce_in_order(it, it.step < 2 ? std::vector{2, 1, 0} : std::vector{2, 0}); };
  const Certification result = hold(run_in_order({0, 1, 2}), real);
  EXPECT_EQ(result.steps, 2);
  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->step, 2);
  EXPECT_EQ(result.divergence->phase, "reduced gradients");
  EXPECT_EQ(result.divergence->rank, 1);
  EXPECT_THAT(result.divergence->sentence, HasSubstr("rank 1's is missing"));
}

TEST_F(Band, IsNarrowerThanASumOfRoundedParts) {
  FakeRun real = bare();
  real.fault = [](FakeStep& it) {
    reduce_in_order(it, {0, 1, 2});
    if (it.step == 4) tensor_of(it.reduced_gradients, "head.weight")[3] *= 1.00002F;
  };
  const Certification result = hold(run_in_order({0, 1, 2}), real);
  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->step, 4);
  EXPECT_EQ(result.divergence->where, "head.weight");
}

TEST_F(Band, LetsNothingBeMovedOtherwise) {
  const auto gathering = [](uint64_t wrong) {
    FakeRun run = bare();
    run.fault = [wrong](FakeStep& it) {
      reduce_in_order(it, wrong == 0 ? std::vector{0, 1, 2} : std::vector{2, 1, 0});
      const uint64_t out = 99 + (it.step == 3 ? wrong : 0);
      it.collectives.push_back({"all_gather", "", "data", "loss.candidates", -1, DType::float32, {8}, static_cast<uint64_t>(it.rank), out});
    };
    return run;
  };
  const Certification result = hold(gathering(0), gathering(7));
  EXPECT_EQ(result.steps, 3);
  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->phase, "collective");
  EXPECT_THAT(result.divergence->where, HasSubstr("loss.candidates"));
}

TEST_F(Band, HoldsWhatIsExactExactly) {
  FakeRun real = bare();
  real.fault = [](FakeStep& it) {
    reduce_in_order(it, {2, 1, 0});
    if (it.step == 1 && it.rank == 2) it.samples[0] += 1;
  };
  const Certification result = hold(run_in_order({0, 1, 2}), real);
  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->step, 1);
  EXPECT_EQ(result.divergence->phase, "samples");
}

TEST_F(Band, TakesWhatIsPlantedInBothForNoDifference) {
  const Certification result = hold(run_in_order({0, 2}), run_in_order({2, 0}));
  EXPECT_FALSE(result.divergence) << result.divergence->sentence;
  EXPECT_EQ(result.steps, kSteps);
}

TEST_F(Band, SeesAnotherFaultOfTheRealRanksBesideOneThatIsPlantedInBoth) {
  FakeRun real = bare();
  real.fault = [](FakeStep& it) {
    reduce_in_order(it, {2, 0});
    if (it.step == 3) tensor_of(it.reduced_gradients, "head.weight")[3] += 1000;
  };
  const Certification result = hold(run_in_order({0, 2}), real);
  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->step, 3);
  EXPECT_EQ(result.divergence->where, "head.weight");
}

TEST_F(Band, CountsTheStepsOfAPrefixThatEnds) {
  FakeRun real = run_in_order({2, 1, 0});
  real.steps = support::steps_up_to(4);
  EXPECT_EQ(hold(run_in_order({0, 1, 2}), real).steps, 4);
}

TEST_F(Band, RefusesRunsThatAreNotOfOnePrefix) {
  FakeRun other = run_in_order({0, 1, 2});
  other.steps = {1, 2, 3};
  EXPECT_THROW(hold(other, run_in_order({0, 1, 2})), TraceError);
  FakeRun more = bare();
  more.world_size = 4;
  EXPECT_THROW(hold(more, run_in_order({0, 1, 2})), TraceError);
}

}  // namespace
}  // namespace lockstep
