// Cases of rewards on real ranks over Gloo: the bits of emulated ones, every mutant named alike, and one error for all where a
// reward function or a rank fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/run/libraries.h"
#include "harness/suites/rewards/emulated.h"
#include "harness/suites/rewards/judge.h"
#include "harness/suites/rewards/real.h"
#include "tests/support/temp_folder.h"

namespace lockstep::rewards {
namespace {

constexpr double kDeadline_s = 60;

class RealRewards : public testing::Test {
 protected:
  RealAnswers play(int world, const std::vector<Order>& orders, int stays = -1) {
    rules_.world = world;
    return ranks_.play(rules_, orders, kDeadline_s, stays);
  }
  /// The answers of one order, by rank.
  static std::vector<Answer> of_order(const RealAnswers& answers, std::size_t at) {
    std::vector<Answer> by_rank;
    for (const auto& given : answers.by_rank) by_rank.push_back(at < given.size() ? given[at] : Answer{});
    return by_rank;
  }

  TempFolder folder_;
  const int stop_ = 0;
  RealRanks ranks_{rank_program_path(), folder_.path() + "/work", &stop_};
  CaseRules rules_{.seed = 1, .world = 3, .deadline_s = 1, .score_deadline_s = 0.2};
};

TEST_F(RealRewards, HaveTheBitsOfEmulatedRanks) {
  std::vector<Order> orders;
  for (int64_t number = 0; number < 20; ++number) orders.push_back({number, "", FaultKind::none});
  for (const int world : {1, 3}) {
    const RealAnswers answers = play(world, orders);
    ASSERT_EQ(answers.problem, "");
    for (std::size_t at = 0; at < orders.size(); ++at) {
      const Case one = case_of(rules_, orders[at]);
      const CaseResult result = judge_real(one, of_order(answers, at), answer_of(play_emulated(one).front()));
      EXPECT_EQ(result.verdict, CaseVerdict::good) << result.sentence;
    }
  }
}

TEST_F(RealRewards, NameMistakes) {
  std::vector<Order> orders;
  for (const char* name : {"no_broadcast", "stale_buffer", "local_statistics", "world_dropped", "totals_resent", "merge_skipped",
                           "sigma_terms_missing", "step_behind"})
    orders.push_back({0, name, FaultKind::none});
  const RealAnswers answers = play(3, orders);
  ASSERT_EQ(answers.problem, "");
  for (std::size_t at = 0; at < orders.size(); ++at) {
    const CaseResult result = judge_mutant(case_of(rules_, orders[at]), plant_of(rules_, orders[at]), of_order(answers, at));
    EXPECT_EQ(result.outcome, "named at its first step") << result.sentence;
  }
}

TEST_F(RealRewards, LeaveWithOneErrorWhereTheFunctionOrARankFails) {
  for (const FaultKind fault : {FaultKind::throws, FaultKind::hangs, FaultKind::rank_ends, FaultKind::rank_hangs}) {
    const Order order{0, "", fault};
    const RealAnswers answers = play(3, {order}, fault == FaultKind::rank_hangs ? 2 : -1);
    ASSERT_EQ(answers.problem, "") << name_of(fault);
    const Case one = case_of(rules_, order);
    Case before = one;
    before.fault = FaultKind::none;
    before.steps.resize(1);
    const CaseResult result = judge_fault(one, of_order(answers, 0), answer_of(play_emulated(before).front()).kept);
    EXPECT_EQ(result.verdict, CaseVerdict::good) << result.sentence;
  }
}

}  // namespace
}  // namespace lockstep::rewards
