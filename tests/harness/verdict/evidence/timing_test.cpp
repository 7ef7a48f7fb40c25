#include "harness/verdict/evidence/timing.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/verdict/plan/planned_run.h"
#include "harness/verdict/questions/judge.h"
#include "harness/verdict/results/document.h"
#include "tests/support/json_schema.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A matrix that times these layouts three times each, and what its ranks have left: a step of 24 rows takes
/// one rank 24 ms, and ranks share the work without a loss.
struct Timed {
  Plan plan;
  JudgeOptions options;
  std::map<std::string, std::vector<RankResult>> results;  ///< by run id
  std::vector<std::pair<std::string, std::string>> facts{{"cores", "8"}, {"processor", "a plain one"}};

  explicit Timed(const std::vector<Layout>& layouts) {
    options.out_dir = "out";
    plan.matrix.timing.layouts = layouts;
    plan.matrix.cells.emplace_back();
    plan.runs = timing_runs(plan.matrix);
    int number = 0;
    for (const PlannedRun& run : plan.runs) {
      const Layout& layout = run.config.layout;
      for (int rank = 0; rank < layout.world_size; ++rank) {
        RankResult result;
        result.rank = rank;
        result.world_size = layout.world_size;
        result.status = "finished";
        result.steps_done = run.config.steps;
        // The last rank is the slowest and the first one waits for it; repeats differ by a tenth of a ms.
        result.step_seconds = layout.rows_per_rank * 1e-3 +
                              1e-4 * (number / static_cast<int>(layouts.size())) -
                              (rank + 1 < layout.world_size ? 1e-5 : 0);
        result.communication_share = layout.world_size > 1 ? 0.3 - 0.01 * rank : 0;
        result.received_bytes = 1000.0 * (layout.world_size - 1);
        result.activation_bytes = 512.0 * layout.rows_per_rank;
        result.weight_bytes = 4096;
        results[run.id].push_back(result);
      }
      ++number;
    }
  }
  void change(const Layout& layout, const std::function<void(RankResult&)>& edit) {
    for (const PlannedRun& run : plan.runs) {
      if (run.config.layout != layout) continue;
      for (RankResult& result : results.at(run.id)) edit(result);
    }
  }
  Timing judge() const {
    const RankResultReader read = [this](const std::string& path) {
      const std::string run = path.substr(9, path.rfind('/') - 9);  // out/runs/ID/rank-R.result.json
      const auto found = results.find(run);
      if (found == results.end()) throw std::runtime_error(path + ": cannot read it");
      return found->second.at(static_cast<std::size_t>(std::stoi(path.substr(path.rfind('-') + 1))));
    };
    return judge_timing(plan, options.out_dir, options.failures, read, facts).value();
  }
};

const TimingRow& row_of(const Timing& timing, const std::string& group, const Layout& layout) {
  for (const TimingRow& row : timing.rows) {
    if (row.group == group && row.layout == layout) return row;
  }
  throw std::runtime_error("no such row");
}

const std::vector<Layout> kUsual = {{1, 24}, {2, 12}, {4, 6}, {8, 3}, {1, 3}, {2, 3}, {4, 3}};

TEST(TimingJudge, HoldsEachLayoutAgainstOneRankOfItsGroup) {
  const Timing timing = Timed(kUsual).judge();
  EXPECT_EQ(timing.rows.size(), 8U) << "8x3 stands in both groups";
  EXPECT_EQ(timing.cores, 8);
  EXPECT_EQ(timing.processor, "a plain one");
  const TimingRow& fast = row_of(timing, kEqualBatch, {8, 3});
  EXPECT_EQ(fast.runs, 3);
  EXPECT_NEAR(fast.step_seconds, 3.1e-3, 1e-9) << "of the slowest rank, in the median over runs";
  EXPECT_NEAR(fast.interval.low, 3.0e-3, 1e-9);
  EXPECT_NEAR(fast.interval.high, 3.2e-3, 1e-9);
  EXPECT_NEAR(fast.rows_per_second, 24 / 3.1e-3, 1e-6);
  EXPECT_NEAR(fast.speed_up, 24.1 / 3.1, 1e-9);
  EXPECT_NEAR(fast.efficiency, 24.1 / 3.1 / 8, 1e-9);
  EXPECT_NEAR(fast.speed_up_range.low, 24.0 / 3.2, 1e-9) << "the slowest run against the fastest of one rank";
  EXPECT_NEAR(fast.speed_up_range.high, 24.2 / 3.0, 1e-9);
  EXPECT_NEAR(fast.share_range.high, 0.3, 1e-12);
  EXPECT_NEAR(fast.communication_share, 0.3, 1e-12) << "of the rank that waits most";
  EXPECT_EQ(fast.bytes, 7000);
  EXPECT_EQ(fast.weight_bytes, 4096);
  EXPECT_FALSE(fast.crowded);
  const TimingRow& wide = row_of(timing, kEqualRows, {8, 3});
  EXPECT_NEAR(wide.speed_up, 8, 1e-9) << "against 1x3: eight times the rows in the same time";
  EXPECT_EQ(row_of(timing, kEqualRows, {1, 3}).speed_up, 1);
  EXPECT_EQ(row_of(timing, kEqualRows, {1, 3}).speed_up_range.high, 1) << "the unit itself";
  EXPECT_THAT(timing.sentence, HasSubstr("8x3 processes 7.77 times (7.50 to 8.07 over 3 runs) the rows a second"));
  EXPECT_THAT(timing.sentence, HasSubstr("Every rank had its own core"));
  EXPECT_THAT(timing.sentence, Not(HasSubstr("failed")));
}

TEST(TimingJudge, ShowsALayoutThatIsTwiceAsSlow) {
  Timed timed(kUsual);
  const double before = row_of(timed.judge(), kEqualBatch, {4, 6}).speed_up;
  timed.change({4, 6}, [](RankResult& result) { result.step_seconds *= 2; });
  const Timing slow = timed.judge();
  EXPECT_NEAR(row_of(slow, kEqualBatch, {4, 6}).speed_up, before / 2, 1e-9);
  const Timing same = Timed(kUsual).judge();
  EXPECT_EQ(row_of(slow, kEqualBatch, {2, 12}).speed_up, row_of(same, kEqualBatch, {2, 12}).speed_up);
}

TEST(TimingJudge, OneSlowRankIsTheStep) {
  Timed timed(kUsual);
  timed.change({4, 6}, [](RankResult& result) { result.step_seconds *= result.rank == 2 ? 3 : 1; });
  EXPECT_GT(row_of(timed.judge(), kEqualBatch, {4, 6}).step_seconds, 18e-3);
}

TEST(TimingJudge, SaysWhatTooFewCoresHide) {
  Timed timed(kUsual);
  timed.facts[0].second = "2";
  const Timing timing = timed.judge();
  EXPECT_THAT(timing.sentence, HasSubstr("8 ranks share 2 cores: a speed-up above 2 is not possible"));
  EXPECT_TRUE(row_of(timing, kEqualBatch, {4, 6}).crowded);
  EXPECT_FALSE(row_of(timing, kEqualBatch, {2, 12}).crowded);
}

TEST(TimingJudge, SaysWhereRepeatsScatter) {
  Timed timed(kUsual);
  EXPECT_THAT(timed.judge().sentence, Not(HasSubstr("Repeats")));
  for (RankResult& result : timed.results.at(timed.plan.runs.front().id)) result.step_seconds *= 3;
  EXPECT_THAT(timed.judge().sentence, HasSubstr("Repeats of 1x24 differ by a factor of 3.0"));
}

TEST(TimingJudge, NamesRunsThatFailedAndGoesOnWithTheOthers) {
  Timed timed(kUsual);
  for (const PlannedRun& run : timed.plan.runs) {
    if (run.config.layout == Layout{2, 12}) {
      Failure& failure = timed.options.failures[run.id];
      failure.run = run.id;
      failure.kind = FailureKind::died;
      failure.message = "killed by signal 9";
      break;
    }
  }
  timed.change({4, 3}, [](RankResult& result) { result.steps_done = 7; });
  const Timing timing = timed.judge();
  EXPECT_EQ(row_of(timing, kEqualBatch, {2, 12}).runs, 2);
  EXPECT_GT(row_of(timing, kEqualBatch, {2, 12}).speed_up, 1.9);
  EXPECT_THAT(timing.sentence, HasSubstr("For 2x12, 1 of 3 timed runs failed (died: killed by signal 9)."));
  EXPECT_EQ(row_of(timing, kEqualRows, {4, 3}).runs, 0);
  EXPECT_TRUE(std::isnan(row_of(timing, kEqualRows, {4, 3}).speed_up));
  EXPECT_THAT(timing.sentence, HasSubstr("For 4x3, 3 of 3 timed runs failed (rank 0 timed 7 of 100 steps)."));
  Results results;
  results.cells.emplace_back();
  EXPECT_EQ(exit_code_of(results), 0);
  results.timing = timing;
  EXPECT_EQ(exit_code_of(results), 3);
  results.timing = Timed(kUsual).judge();
  EXPECT_EQ(exit_code_of(results), 0);
}

TEST(TimingJudge, KnowsNoSpeedUpWithoutOneRank) {
  const Timing timing = Timed({{2, 12}, {4, 6}, {3, 5}}).judge();
  EXPECT_TRUE(std::isnan(row_of(timing, kEqualBatch, {4, 6}).speed_up));
  EXPECT_NEAR(row_of(timing, kEqualBatch, {3, 5}).step_seconds, 5.1e-3, 1e-9) << "like no other, and told";
}

TEST(TimingJudge, SaysNothingWhereNothingIsTimed) {
  const Plan nothing;
  EXPECT_FALSE(judge_timing(nothing, "", {}, nullptr, {}));
}

TEST(TimingJson, ComesBackAsItWasAndKeepsItsSchema) {
  Timed timed({{1, 24}, {8, 3}});
  timed.change({8, 3}, [](RankResult& result) { result.steps_done = 0; });
  Results results;
  results.timing = timed.judge();
  const std::string text = results_to_json(results);
  const auto schema = nlohmann::json::parse(results_schema());
  EXPECT_THAT(support::schema_violations(nlohmann::json::parse(text), schema), IsEmpty());
  const Results back = results_from_json(text, "r.json");
  ASSERT_TRUE(back.timing);
  EXPECT_EQ(back.timing->rows.size(), 2U);
  EXPECT_TRUE(std::isnan(row_of(*back.timing, kEqualBatch, {8, 3}).step_seconds));
  EXPECT_EQ(results_to_json(back), text);
  EXPECT_FALSE(results_from_json(results_to_json(Results{}), "r.json").timing);
}

}  // namespace
}  // namespace lockstep
