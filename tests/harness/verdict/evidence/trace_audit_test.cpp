// Audits of samples and draws: what is right is passed, each planted mistake is found and placed.

#include "harness/verdict/evidence/trace_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <stdexcept>

#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

/// 24 samples partitioned to 3 ranks of 2 rows: epochs of 4 steps, the second one in another order.
int64_t partitioned(int64_t step, int64_t place) {
  const int64_t at = step % 4 * 6 + place;
  return step < 4 ? at : (at * 5 + 1) % 24;
}

class Audited : public testing::Test {
 protected:
  using Ids = std::function<std::vector<int64_t>(int64_t step, int rank)>;
  using Key = std::function<uint64_t(int64_t step, int rank)>;

  static std::vector<int64_t> rows(int64_t step, int rank) {
    return {partitioned(step, rank), partitioned(step, rank + 3)};
  }
  static uint64_t key(int64_t step, int rank) {
    return 1000 * static_cast<uint64_t>(step) + static_cast<uint64_t>(rank);
  }
  std::string write(const std::string& name, const Ids& ids = rows, const Key& keys = key, int64_t steps = 9,
                    int world_size = 3) const {
    const std::string dir = folder_.path() + "/" + name;
    std::filesystem::create_directories(dir);
    for (int rank = 0; rank < world_size; ++rank) {
      TraceWriter writer(dir + "/rank-" + std::to_string(rank) + ".trace",
                         {"hash", rank, world_size, "energy", TraceLevel::hash, "emulated"});
      writer.begin_step(-1);
      writer.end_step();
      for (int64_t step = 0; step < (rank == 0 ? steps : 9); ++step) {
        writer.begin_step(step);
        writer.samples(ids(step, rank));
        writer.random("dropout", keys(step, rank), 10);
        writer.end_step();
      }
      writer.finish();
    }
    return dir;
  }
  support::TempFolder folder_;
};

TEST_F(Audited, SamplesThatArePartitionedRightlyPass) {
  const SampleLedger run = read_samples(write("run"), 3);
  ASSERT_EQ(run.ids.size(), 9u);
  const AuditAnswer once = each_sample_once(run);
  EXPECT_TRUE(once.yes) << once.figures;
  EXPECT_EQ(once.figures, "2 epochs of 4 steps, 24 samples each once");
  EXPECT_TRUE(equal_counts(run).yes);
  EXPECT_TRUE(reshuffled(run).yes);
  // The same rows of each step among the ranks in another way.
  const auto turned = [](int64_t step, int rank) { return rows(step, (rank + 1) % 3); };
  EXPECT_TRUE(same_samples(run, read_samples(write("turned", turned), 3)).yes);
}

TEST_F(Audited, ASampleOnTwoRanksIsPlaced) {
  const auto doubled = [](int64_t step, int rank) {
    return step == 2 && rank == 2 ? std::vector<int64_t>{partitioned(2, 0), partitioned(2, 5)} : rows(step, rank);
  };
  const SampleLedger run = read_samples(write("doubled", doubled), 3);
  const AuditAnswer once = each_sample_once(run);
  EXPECT_FALSE(once.yes);
  EXPECT_EQ(once.figures, "step 2: rank 2 has sample 12, which the step has already");
  const AuditAnswer same = same_samples(run, read_samples(write("right"), 3));
  EXPECT_FALSE(same.yes);
  EXPECT_EQ(same.figures, "other samples at step 2");
}

TEST_F(Audited, ASampleThatComesBackEarlyBreaksTheEpochs) {
  const auto early = [](int64_t step, int rank) { return step == 6 ? rows(4, rank) : rows(step, rank); };
  const AuditAnswer once = each_sample_once(read_samples(write("early", early), 3));
  EXPECT_FALSE(once.yes);
  EXPECT_THAT(once.figures, HasSubstr("after 2 steps at step 6, but after 4 in the first epoch"));
}

TEST_F(Audited, AnOrderThatRepeatsAndUnequalRowsAreFound) {
  const auto repeated = [](int64_t step, int rank) { return rows(step % 4, rank); };
  const AuditAnswer order = reshuffled(read_samples(write("repeated", repeated), 3));
  EXPECT_FALSE(order.yes);
  EXPECT_EQ(order.figures, "step 4 repeats step 0");
  const auto unequal = [](int64_t step, int rank) {
    std::vector<int64_t> ids = rows(step, rank);
    if (step == 3 && rank == 1) ids.pop_back();
    return ids;
  };
  const AuditAnswer counts = equal_counts(read_samples(write("unequal", unequal), 3));
  EXPECT_FALSE(counts.yes);
  EXPECT_EQ(counts.figures, "step 3: rank 1 has 1 rows, rank 0 has 2");
}

TEST_F(Audited, RanksThatTellOfDifferentLengthsAreRefused) {
  const std::string dir = write("short", rows, key, 7);
  EXPECT_THROW(read_samples(dir, 3), std::runtime_error);
}

TEST_F(Audited, DrawsThatAreAlikeAreNamed) {
  EXPECT_TRUE(ranks_draw_apart(read_draws(write("apart"), 3)).yes);
  const auto same = [](int64_t step, int rank) { return key(step, step == 5 && rank == 2 ? 0 : rank); };
  const AuditAnswer found = ranks_draw_apart(read_draws(write("same", rows, same), 3));
  EXPECT_FALSE(found.yes);
  EXPECT_EQ(found.figures, "step 5: rank 0 and rank 2 draw the same dropout");
}

TEST_F(Audited, SeedPlusRankMeetsTheNextSeed) {
  const auto of_seed = [](int64_t seed) {
    return [seed](int64_t step, int rank) { return key(step, rank + static_cast<int>(seed)); };
  };
  const DrawLedger first = read_draws(write("seed0", rows, of_seed(0)), 3);
  const DrawLedger next = read_draws(write("seed1", rows, of_seed(1)), 3);
  const DrawLedger far = read_draws(write("seed9", rows, of_seed(9)), 3);
  EXPECT_TRUE(runs_draw_apart({first, far}, {0, 9}).yes);
  const AuditAnswer met = runs_draw_apart({first, next}, {0, 1});
  EXPECT_FALSE(met.yes);
  EXPECT_EQ(met.figures, "step 0: seed 0 rank 1 and seed 1 rank 0 draw the same dropout");
}

}  // namespace
}  // namespace lockstep
