// Claims: each kind of condition true, false and undecided; what follows for the claim and for the exit code.

#include "harness/verdict/questions/claims/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "harness/verdict/questions/summary.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/trace/rank_result.h"
#include "tests/support/files.h"
#include "tests/support/synthetic_matrix.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::scatter;
using support::SyntheticMatrix;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Kind = Condition::Kind;

constexpr ClaimState kHolds = ClaimState::holds, kFalse = ClaimState::does_not_hold,
                     kOpen = ClaimState::undecided;

/// Ten seeds of three arms, whose figures are known.
class Judged : public ::testing::Test {
 protected:
  Judged() {
    arm("1x24", nullptr, 0.7, 0.5, 1.0);
    arm("8x3 global", &global_, 0.701, 0.5, 1.2);
    arm("8x3 local", &local_, 0.6, 0.2, 1.0);
    evidence_.primary = {"accuracy_24", 0.03, 0.05};
    global_.mechanism.emplace();
    global_.mechanism->verdict = VerdictKind::divergent;
    global_.mechanism->first_divergence.emplace();
    global_.mechanism->first_divergence->phase = "reduced gradients";
    for (const int64_t step : {0, 60}) {
      global_.mechanism->forced.push_back(
          {step,
           {{"action_encoder", 0, 0, 0, 1, 1e-6},
            {"temperature", 1.0 + 0.01 * static_cast<double>(step), 1, 0, 0, 1}},
           1,
           ""});
    }
  }
  void arm(const std::string& name, CellResult* cell, double accuracy, double loss, double seconds) {
    ArmEvidence arm{cell, cell ? "1x24" : "", name + "-s0", {}};
    for (int64_t seed = 0; seed < 10; ++seed) {
      RunEvidence& run = runs_[name][seed];
      run.metrics = {{"accuracy_24", accuracy + 0.005 * scatter(seed + (cell ? 3 : 0))}};
      run.seconds = seconds * (1 + 0.01 * scatter(seed + (cell == &local_)));
      run.curves["loss"] = {{0, 1}, {2.0 + loss, loss}};
      run.curves["energy"] = {{0, 1}, {0, 1.5}};
      arm.seeds[seed] = &run;
    }
    evidence_.arms[name] = arm;
  }
  ConditionResult judge(const Condition& condition) const {
    const auto results = judge_claims({{"A1", "told", {condition}, {}, "", "", {}}}, evidence_);
    EXPECT_EQ(results[0].state, results[0].conditions[0].state);
    return results[0].conditions[0];
  }
  ClaimState outcome(const std::string& cell, std::vector<std::string> is, const std::string& metric = "",
                     const std::string& against = "", double margin = 0) const {
    return judge({Kind::outcome, cell, against, metric, "", std::move(is), 0, 0, margin, {}}).state;
  }
  ConditionResult within(Kind kind, const std::string& metric, const std::string& cell, double low,
                         double high, const std::string& against = "") const {
    return judge({kind, cell, against, metric, "", {}, low, high, 0, {}});
  }
  CellResult global_, local_;
  std::map<std::string, std::map<int64_t, RunEvidence>> runs_;
  ClaimEvidence evidence_;
};

TEST_F(Judged, FirstDivergencesAreWhatTheyAreSaidToBe) {
  Divergence& first = *global_.mechanism->first_divergence;
  first.step = 20;
  first.rank = 5;
  first.where = "energy_head.key.weight";
  global_.mechanism->cause = Cause{"not-finite", 1, "", ""};
  Condition condition{Kind::first, "8x3 global", "", "", "", {}, 0, 0, 0, {}};
  condition.step = 20;
  condition.rank = 5;
  condition.cause = "not-finite";
  EXPECT_EQ(judge(condition).state, kHolds);
  EXPECT_EQ(judge(condition).figures, "step 20, rank 5, energy_head.key.weight, not-finite");
  condition.step = 19;
  EXPECT_EQ(judge(condition).state, kFalse);
  condition = {Kind::first, "8x3 local", "", "", "", {}, 0, 0, 0, {}};
  EXPECT_EQ(judge(condition).state, kFalse);
  EXPECT_EQ(judge(condition).figures, "nothing was found");
}

TEST_F(Judged, CertificatesHoldFromSoManyStepsOn) {
  global_.certification.wanted = true;
  global_.certification.steps = 20;
  Condition condition{Kind::certified, "8x3 global", "", "", "", {}, 0, 0, 0, {}};
  condition.step = 20;
  EXPECT_EQ(judge(condition).state, kHolds);
  condition.step = 21;
  EXPECT_EQ(judge(condition).state, kFalse);
  global_.certification.divergence.emplace();
  condition.step = 20;
  EXPECT_EQ(judge(condition).state, kFalse);
  condition.cell = "8x3 local";
  EXPECT_EQ(judge(condition).state, kOpen);
}

TEST_F(Judged, TimingsOfCrowdedCoresDecideNothing) {
  Condition condition{Kind::timing, "2x24", "", "speed_up", "", {}, 1.8, 2.0, 0, {}};
  EXPECT_EQ(judge(condition).state, kOpen);
  Timing timing;
  timing.cores = 2;
  timing.rows.resize(2);
  timing.rows[0].layout = {2, 24};
  timing.rows[0].speed_up = 1.9;
  timing.rows[1].layout = {8, 24};
  timing.rows[1].speed_up = 1.9;
  timing.rows[1].crowded = true;
  evidence_.timing = &timing;
  EXPECT_EQ(judge(condition).state, kHolds);
  timing.rows[0].speed_up = 1.2;
  EXPECT_EQ(judge(condition).state, kFalse);
  condition.cell = "8x24";
  EXPECT_EQ(judge(condition).state, ClaimState::not_testable);
  EXPECT_THAT(judge(condition).figures, HasSubstr("share cores"));
}

TEST_F(Judged, OutcomesAreTheMatrixsTest) {
  EXPECT_EQ(outcome("8x3 local", {"worse"}), kHolds);
  EXPECT_EQ(outcome("8x3 local", {"better"}), kFalse);
  EXPECT_EQ(outcome("8x3 local", {"lower"}), kHolds);
  EXPECT_EQ(outcome("8x3 local", {"different"}), kHolds);
  EXPECT_EQ(outcome("8x3 local", {"equivalent"}), kFalse);
  EXPECT_EQ(outcome("8x3 global", {"equivalent"}), kHolds);
  EXPECT_EQ(outcome("8x3 global", {"worse"}), kFalse) << "what is equivalent is not worse";
  EXPECT_EQ(outcome("8x3 global", {"worse", "equivalent"}), kHolds);
  EXPECT_EQ(outcome("8x3 global", {"different"}), kFalse);
}

TEST_F(Judged, OutcomesAreUndecidedWhereTheTestIs) {
  EXPECT_EQ(outcome("8x3 local", {"worse"}, "", "", 0.1), kOpen) << "the difference is about the margin";
  EXPECT_EQ(outcome("8x3 local", {"better"}, "", "", 0.1), kFalse) << "worse it is in any case";
  EXPECT_EQ(outcome("8x3 local", {"equivalent"}, "", "", 0.1), kOpen);
}

TEST_F(Judged, OutcomesTakeAnotherCellAndAnotherMetric) {
  EXPECT_EQ(outcome("8x3 global", {"better"}, "", "8x3 local"), kHolds);
  EXPECT_EQ(outcome("1x24", {"better"}, "", "8x3 local"), kHolds);
  EXPECT_EQ(outcome("8x3 local", {"better"}, "train_loss"), kHolds) << "its training loss reads better";
  EXPECT_EQ(outcome("8x3 local", {"lower"}, "first_loss"), kHolds);
  EXPECT_EQ(outcome("8x3 local", {"higher"}, "train_energy - train_loss"), kHolds);
  const Condition no_direction{Kind::outcome, "8x3 local", "", "train_energy", "", {"worse"}, 0, 0, 0, {}};
  EXPECT_EQ(judge(no_direction).state, kOpen);
  EXPECT_THAT(judge(no_direction).figures, HasSubstr("no better or worse direction"));
}

TEST_F(Judged, OutcomesShowTheirFiguresAndRuns) {
  const ConditionResult result = judge({Kind::outcome, "8x3 local", "", "", "", {"worse"}, 0, 0, 0, {}});
  EXPECT_NEAR(result.value, -0.1, 0.003);
  EXPECT_LT(result.interval.high, -0.09);
  EXPECT_EQ(result.interval.level, 0.95);
  EXPECT_THAT(result.text, AllOf(HasSubstr("8x3 local against 1x24"), HasSubstr("24-way accuracy worse")));
  EXPECT_THAT(result.figures, AllOf(HasSubstr("-0.1"), HasSubstr("10 paired seeds")));
  EXPECT_THAT(result.cells, ElementsAre("8x3 local", "1x24"));
  EXPECT_THAT(result.runs, ElementsAre("8x3 local-s0", "1x24-s0"));
}

TEST_F(Judged, ValuesLieWithinOrOutsideTheirBounds) {
  EXPECT_EQ(within(Kind::value, "accuracy_24", "8x3 local", 0.55, 0.65).state, kHolds);
  EXPECT_EQ(within(Kind::value, "accuracy_24", "8x3 local", 0, 0.1).state, kFalse);
  EXPECT_EQ(within(Kind::value, "accuracy_24", "8x3 local", 0, 0.6).state, kOpen);
  EXPECT_EQ(within(Kind::value, "accuracy_24", "1x24", 0.6, 0.8).state, kHolds);
}

TEST_F(Judged, RatiosArePairedBySeed) {
  const ConditionResult result = within(Kind::ratio, "seconds", "8x3 global", 1.15, 1.25, "8x3 local");
  EXPECT_EQ(result.state, kHolds) << result.figures;
  EXPECT_NEAR(result.value, 1.2, 0.01);
  EXPECT_EQ(within(Kind::ratio, "seconds", "8x3 global", 1.3, 2).state, kFalse);
  EXPECT_EQ(within(Kind::ratio, "seconds", "8x3 global", result.value, 2, "8x3 local").state, kOpen);
}

TEST_F(Judged, GradientsAreJudgedAtEveryForcedStep) {
  const auto gradient = [&](const std::string& group, double low, double high) {
    return judge({Kind::gradient, "8x3 global", "", "ratio", group, {}, low, high, 0, {}});
  };
  EXPECT_EQ(gradient("action_encoder", 0, 0).state, kHolds);
  EXPECT_EQ(gradient("action_encoder", 0.9, 1.1).state, kFalse);
  EXPECT_EQ(gradient("temperature", 0.9, 1.1).state, kFalse) << "1 at step 0, 1.6 at step 60";
  EXPECT_EQ(gradient("temperature", 1, 1.6).state, kHolds);
  EXPECT_EQ(gradient("energy_head", 0, 0).state, kOpen);
  EXPECT_THAT(gradient("temperature", 1, 2).figures, HasSubstr("1 to 1.6"));
  local_.mechanism.reset();
  EXPECT_EQ(judge({Kind::gradient, "8x3 local", "", "ratio", "temperature", {}, 0, 0, 0, {}}).state, kOpen);
}

TEST_F(Judged, MechanismsAreNamed) {
  const auto mechanism = [&](std::vector<std::string> is) {
    return judge({Kind::mechanism, "8x3 global", "", "", "", std::move(is), 0, 0, 0, {}}).state;
  };
  EXPECT_EQ(mechanism({"divergent"}), kHolds);
  EXPECT_EQ(mechanism({"identical", "within_envelope"}), kFalse);
  global_.mechanism->verdict = VerdictKind::inconclusive;
  EXPECT_EQ(mechanism({"divergent"}), kOpen);
}

TEST_F(Judged, RulesNeedNoRun) {
  const auto rule = [&](const std::string& name, const std::string& layout, const std::string& gives) {
    return judge({Kind::rule, layout, "", name, "", {gives}, 0, 0, 0, {}});
  };
  EXPECT_EQ(rule("adaptive_as_written", "4x6", "layer").state, kHolds);
  EXPECT_EQ(rule("adaptive_as_written", "2x12", "layer").state, kFalse);
  EXPECT_EQ(rule("adaptive", "8x3", "global").state, kHolds);
  EXPECT_EQ(rule("adaptive", "8x3", "layer").figures, "global");
}

TEST_F(Judged, WhatFailedOrWasNotMeasuredDecidesNothing) {
  EXPECT_EQ(outcome("8x3 local", {"worse"}, "perplexity"), kOpen);
  EXPECT_EQ(outcome("16x2", {"worse"}), kOpen);
  runs_["8x3 local"][4].metrics["accuracy_24"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(outcome("8x3 local", {"worse"}), kOpen);
  runs_["8x3 global"][4].failure.emplace();
  const ConditionResult failed = judge({Kind::outcome, "8x3 global", "", "", "", {"worse"}, 0, 0, 0, {}});
  EXPECT_EQ(failed.state, kOpen);
  EXPECT_THAT(failed.figures, HasSubstr("seed 4 of 8x3 global failed"));
}

TEST_F(Judged, OneSeedDecidesNothing) {
  for (auto& [name, arm] : evidence_.arms) arm.seeds.erase(std::next(arm.seeds.begin()), arm.seeds.end());
  EXPECT_EQ(outcome("8x3 local", {"worse"}), kOpen);
  EXPECT_EQ(within(Kind::ratio, "seconds", "8x3 global", 0, 9).state, kOpen);
}

TEST_F(Judged, SuitesAreWhatTheirResultsSay) {
  const support::TempFolder folder;
  Results results;
  results.name = "killed";
  results.question = std::string(kSuiteQuestion);
  results.suite.emplace();
  results.suite->table = {{"kill", "rank 0, write", "old", CaseVerdict::good, 7},
                               {"kill", "rank 1, write", "torn", CaseVerdict::fault, 1},
                               {"resume", "every step", "bit-equal", CaseVerdict::good, 64},
                               {"resume", "an epoch's edge", "not reached", CaseVerdict::undecided, 1},
                               {"planted: no fsync", "any operation", "planted, found: torn", CaseVerdict::planted, 2},
                               {"planted: no wait", "any operation", "planted, found: mixed", CaseVerdict::planted, 1},
                               {"planted: no wait", "begin", "planted, harmless here", CaseVerdict::good, 1}};
  support::write_file(folder / "killed", results_to_json(results));
  evidence_.results_beside = [&folder](const std::string& name) { return folder / name; };
  const auto of = [&](const std::string& failure, const std::string& place, const std::string& outcome,
                      const std::string& is, const std::string& name = "killed") {
    Condition condition{Kind::suite, name, "", "", "", {is}, 0, 0, 0, {}};
    condition.failure = failure;
    condition.place_words = place;
    condition.outcome = outcome;
    return judge(condition);
  };
  EXPECT_EQ(of("kill", "", "", "clean").state, kFalse);
  EXPECT_EQ(of("kill", "", "", "faulty").state, kHolds);
  EXPECT_EQ(of("kill", "rank 0, write", "", "clean").state, kHolds);
  EXPECT_EQ(of("kill", "rank 0, write", "new", "clean").state, kFalse);
  EXPECT_EQ(of("resume", "every step", "bit-equal", "clean").state, kHolds);
  EXPECT_EQ(of("resume", "", "", "clean").state, kFalse) << "one is undecided";
  EXPECT_EQ(of("kill", "", "", "clean").figures, "1 of 8 cases wrong, 0 undecided");
  EXPECT_EQ(of("planted: no fsync", "", "", "found").state, kHolds);
  EXPECT_EQ(of("planted: no fsync", "", "", "found").figures, "0 of 2 cases wrong, 0 undecided, 2 planted and found");
  EXPECT_EQ(of("planted: no wait", "", "", "found").state, kFalse) << "one is harmless";
  EXPECT_EQ(of("kill", "", "", "found").state, kFalse) << "nothing is planted there";
  EXPECT_EQ(of("burn", "", "", "clean").state, kOpen);
  EXPECT_EQ(of("kill", "", "", "clean", "never_run").state, kOpen);
  EXPECT_THAT(of("kill", "", "", "clean", "never_run").figures, HasSubstr("run its config first"));
}

TEST_F(Judged, WhatRunsWroteDownIsLookedAtRankByRank) {
  const support::TempFolder folder;
  evidence_.results_beside = [&folder](const std::string& name) { return folder / name + "/results.json"; };
  const std::string run = folder / "robots" + "/runs/8x3-s0/";
  std::filesystem::create_directories(run);
  RankResult first;
  first.world_size = 2;
  first.status = "finished";
  first.step_seconds = 0.01;
  first.communication_seconds = 0.2;
  first.resident_first_bytes = first.resident_last_bytes = 1e8;
  first.metrics["success"] = 0.7;
  RankResult second = first;  // a thread beside it: without a log and memory of its own
  second.rank = 1;
  second.resident_first_bytes = second.resident_last_bytes = 0;
  second.metrics.clear();
  const auto judged = [&](const std::string& metric = "success", const std::string& name = "robots") {
    Condition condition{Kind::written, name, "", metric, "", {"logs", "results", "steps_per_s", "memory", "communication_time"}, 0, 0, 0, {}};
    return judge(condition);
  };
  EXPECT_THAT(judged().figures, HasSubstr("no run"));
  EXPECT_EQ(judged().state, kOpen);
  write_rank_result(run + "rank-0.result.json", first);
  write_rank_result(run + "rank-1.result.json", second);
  support::write_file(run + "rank-0.log", "");
  support::write_file(run + "done", "");
  EXPECT_EQ(judged().state, kHolds) << judged().figures;
  EXPECT_EQ(judged().figures, "all of it, of 2 ranks in 1 run");
  EXPECT_EQ(judged("perplexity").figures, "8x3-s0, rank 0 lacks perplexity");
  EXPECT_EQ(judged("perplexity").state, kFalse);
  second.communication_seconds = 0;
  write_rank_result(run + "rank-1.result.json", second);
  EXPECT_EQ(judged().figures, "8x3-s0, rank 1 lacks communication_time");
  std::filesystem::remove(run + "rank-1.result.json");
  EXPECT_EQ(judged().figures, "8x3-s0, rank 1 lacks a result");
  std::filesystem::remove(run + "rank-0.log");
  EXPECT_EQ(judged().figures, "8x3-s0, rank 0 lacks logs");
  EXPECT_EQ(judged("", "never_run").state, kOpen);
}

TEST_F(Judged, AClaimHoldsIfAllItsConditionsAreTrue) {
  const Condition yes{Kind::outcome, "8x3 local", "", "", "", {"worse"}, 0, 0, 0, {}};
  const Condition no{Kind::outcome, "8x3 local", "", "", "", {"better"}, 0, 0, 0, {}};
  const Condition open{Kind::outcome, "8x3 local", "", "", "", {"worse"}, 0, 0, 0.1, {}};
  const auto state = [&](std::vector<Condition> conditions) {
    return judge_claims({{"A1", "told", std::move(conditions), {}, "", "", {}}}, evidence_)[0].state;
  };
  EXPECT_EQ(state({yes, yes}), kHolds);
  EXPECT_EQ(state({yes, open}), kOpen);
  EXPECT_EQ(state({open, no, yes}), kFalse);
}

TEST_F(Judged, ExpectationsAndReasonsAreKept) {
  const Condition yes{Kind::outcome, "8x3 local", "", "", "", {"worse"}, 0, 0, 0, {}};
  const Condition open{Kind::outcome, "8x3 local", "", "", "", {"worse"}, 0, 0, 0.1, {}};
  const auto results = judge_claims({{"a", "t", {yes}, {}, "", "holds", {}},
                                     {"b", "t", {yes}, {"8x3 global"}, "", "does not hold", {}},
                                     {"c", "t", {open}, {}, "", "", {}},
                                     {"d", "t", {open}, {}, "", "undecided", {}},
                                     {"e", "t", {}, {}, "no accelerator", "", {}}},
                                    evidence_);
  EXPECT_TRUE(results[0].as_expected);
  EXPECT_FALSE(results[1].as_expected);
  EXPECT_THAT(results[1].shows, ElementsAre("8x3 local", "8x3 global"));
  EXPECT_FALSE(results[2].as_expected) << "to be undecided must be expected";
  EXPECT_TRUE(results[3].as_expected);
  EXPECT_EQ(results[4].state, ClaimState::not_testable);
  EXPECT_EQ(results[4].reason, "no accelerator");
  EXPECT_TRUE(results[4].as_expected);
}

SyntheticMatrix claims_matrix(const std::string& expected, double margin) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.plan.matrix.question = "claims";
  section_of<Claims>(matrix.plan.matrix) = Claims{{"A1",
                                "local learns worse",
                                {{Kind::outcome, "8x3 local", "", "", "", {"worse"}, 0, 0, margin, {}}},
                                {},
                                "",
                                expected,
                                {}}};
  return matrix;
}

TEST(ClaimsMatrix, AnswersByItsClaims) {
  const Results results = claims_matrix("holds", 0).judge();
  ASSERT_EQ(results.claims.size(), 1u);
  EXPECT_EQ(results.claims[0].state, kHolds);
  EXPECT_EQ(results.summary.exit_code, 0);
  EXPECT_THAT(results.summary.sentence, HasSubstr("Of the claims, A1 holds."));
  EXPECT_EQ(results.cells[0].verdict, VerdictKind::equivalent) << "cells are judged as in an outcome matrix";
  EXPECT_THAT(results.claims[0].conditions[0].runs, ElementsAre("8x3 local seed 0", "1x24 global seed 0"));
  EXPECT_EQ(results_to_json(results_from_json(results_to_json(results), "r")), results_to_json(results));
}

TEST(ClaimsMatrix, ExitsWithOneWhereAnExpectedStateDoesNotCome) {
  EXPECT_EQ(claims_matrix("does not hold", 0).judge().summary.exit_code, 1);
}

TEST(ClaimsMatrix, ExitsWithFiveWhereAClaimIsUndecided) {
  EXPECT_EQ(claims_matrix("", 0.094).judge().summary.exit_code, 5);
  EXPECT_EQ(claims_matrix("undecided", 0.094).judge().summary.exit_code, 0);
}

}  // namespace
}  // namespace lockstep
