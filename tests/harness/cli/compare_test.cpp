#include "harness/cli/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/base/errors.h"
#include "harness/cli/words.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Mechanism flipped() {
  Mechanism mechanism;
  mechanism.verdict = VerdictKind::divergent;
  mechanism.sentence = "they part at step 17";
  mechanism.first_divergence = Divergence{17, "local_gradients", 5, "head.weight", DivergenceKind::bits, "3f", "3e", "…"};
  mechanism.cause = Cause{"unexplained", 0.1, "one bit", "look there"};
  mechanism.compared_steps = 17;
  return mechanism;
}

TEST(ComparisonText, NamesThePlace) {
  const std::string text = comparison_text(flipped());
  EXPECT_THAT(text, HasSubstr("divergent: they part at step 17\n"));
  EXPECT_THAT(text, HasSubstr("step 17, local_gradients, rank 5, head.weight"));
  EXPECT_THAT(text, HasSubstr("expected 3f, found 3e"));
  EXPECT_THAT(text, HasSubstr("cause: unexplained"));
}

TEST(ComparisonText, TellsARankThatIsUnknownFromAll) {
  Mechanism mechanism = flipped();
  mechanism.first_divergence->rank = kAllRanks;
  EXPECT_THAT(comparison_text(mechanism), HasSubstr("step 17, local_gradients, all ranks, head.weight"));
  mechanism.first_divergence->rank = kRankUnknown;
  EXPECT_THAT(comparison_text(mechanism), HasSubstr("step 17, local_gradients, rank unknown, head.weight"));
}

TEST(ComparisonText, SaysNoPlaceWhereThereIsNone) {
  Mechanism equal;
  equal.verdict = VerdictKind::identical;
  equal.sentence = "every bit of 20 steps is equal";
  EXPECT_EQ(comparison_text(equal), "identical: every bit of 20 steps is equal\n");
}

TEST(ComparisonText, ShowsNamesOfATraceOnOneLineEach) {
  Mechanism mechanism = flipped();
  const std::string hostile = "w\x1b]0;x\x07\xe2\x80\xae\n  cause: none";
  Divergence& first = *mechanism.first_divergence;
  first.where = first.phase = first.expected = first.actual = hostile;
  mechanism.sentence = mechanism.cause->evidence = hostile;
  const std::string text = comparison_text(mechanism);
  for (const char* raw : {"\x1b", "\x07", "\xe2\x80\xae", "\n  cause: none"}) EXPECT_THAT(text, testing::Not(HasSubstr(raw)));
}

TEST(ComparisonJson, HoldsTheSame) {
  const auto json = nlohmann::json::parse(comparison_json(flipped(), "a", "b"));
  EXPECT_EQ(json.at("verdict"), "divergent");
  EXPECT_EQ(json.at("first_divergence").at("step"), 17);
  EXPECT_EQ(json.at("first_divergence").at("rank"), 5);
  EXPECT_EQ(json.at("cause").at("code"), "unexplained");
  Mechanism odd;
  odd.band_used = std::nan("");
  EXPECT_EQ(nlohmann::json::parse(comparison_json(odd, "a", "b")).at("band_used"), "nan");
  EXPECT_TRUE(nlohmann::json::parse(comparison_json(odd, "a", "b")).at("cause").is_null());
}

/// A rank that has left two sums.
flight::Recorded two_sums(int rank) {
  flight::Recorded record{rank, 2};
  for (uint64_t i = 0; i < 2; ++i)
    record.entries.push_back({i, "data", i + 1, "all_reduce", "w", "Float", -1, 7, {4}, 0, 0, flight::State::completed});
  return record;
}

TEST(CompareFlightRecords, TellsTheFirstRankAndNumberInTheUsualForm) {
  const flight::Records a{{two_sums(0), two_sums(1)}};
  flight::Records b = a;
  EXPECT_EQ(compare_flight_records(a, b).verdict, VerdictKind::identical);
  b.read[1].entries[1].shape = {3};
  const Mechanism found = compare_flight_records(a, b);
  EXPECT_EQ(found.verdict, VerdictKind::divergent);
  EXPECT_THAT(comparison_text(found), HasSubstr("first: step 7, flight record, rank 1, data 2 all_reduce w\n"
                                                "  kind: size\n"));
  EXPECT_THAT(found.sentence, HasSubstr("size: expected all_reduce w Float [4], found all_reduce w Float [3]"));
}

TEST(CompareFlightRecords, CannotTellWithoutARanksRecordOrACommonCall) {
  const flight::Records a{{two_sums(0), two_sums(1)}};
  EXPECT_EQ(compare_flight_records(a, {{two_sums(0)}}).verdict, VerdictKind::inconclusive);
  EXPECT_EQ(compare_flight_records({{two_sums(0)}}, {{two_sums(1)}}).verdict, VerdictKind::inconclusive);
}

TEST(CompareFlightRecords, NamesTheFileThatItCouldNotRead) {
  const Mechanism found = compare_flight_records({{two_sums(0), two_sums(1)}}, {{two_sums(0)}, {{1, "b/rank_1", "is cut short"}}});
  EXPECT_EQ(found.verdict, VerdictKind::inconclusive);
  EXPECT_THAT(found.sentence, testing::AllOf(HasSubstr("b/rank_1: is cut short; nothing is said of rank 1"), testing::Not(HasSubstr("left no record"))));
}

TEST(ComparisonExitCode, FollowsTheVerdict) {
  EXPECT_EQ(comparison_exit_code(VerdictKind::identical, {}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::within_envelope, {}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::equivalent, {}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::divergent, {}), 1);
  EXPECT_EQ(comparison_exit_code(VerdictKind::inconclusive, {}), 5);
}

TEST(ComparisonExitCode, FollowsTheExpectation) {
  EXPECT_EQ(comparison_exit_code(VerdictKind::divergent, {"divergent"}), 0);
  EXPECT_EQ(comparison_exit_code(VerdictKind::identical, {"divergent"}), 1);
  EXPECT_EQ(comparison_exit_code(VerdictKind::within_envelope, {"identical"}), 1);
  EXPECT_EQ(comparison_exit_code(VerdictKind::inconclusive, {"identical"}), 5);
}

TEST(Words, AreSplitAtCommasAndKeptOnce) {
  EXPECT_THAT(split_lists({"html,md", "md,,json"}), ElementsAre("html", "md", "json"));
  EXPECT_THAT(split_lists({}), ElementsAre());
}

TEST(Words, AreRefusedWithTheNearestKnownOne) {
  EXPECT_NO_THROW(require_known("html", {"html", "md"}, "--format", "format"));
  try {
    require_known("htm", {"html", "md"}, "--format", "format");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems().size(), 1U);
    EXPECT_EQ(error.problems()[0].suggestion, "html");
    EXPECT_THAT(error.problems()[0].text(), HasSubstr("--format: unknown format 'htm'; known are html, md"));
  }
}

}  // namespace
}  // namespace lockstep
