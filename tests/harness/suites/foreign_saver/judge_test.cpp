// Every outcome of a save, from what was expected and what was found.

#include "harness/suites/foreign_saver/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::program {
namespace {

using testing::HasSubstr;

EndResult result(std::initializer_list<const char*> lines) {
  EndResult made;
  for (const char* line : lines) made.parts.emplace_back("line " + std::to_string(made.parts.size() + 1), line);
  return made;
}

const EndResult kFresh = result({"step 0", "a0", "b0"}), kOld = result({"step 1", "a1", "b1"}),
                kNew = result({"step 2", "a2", "b2"});

Expected expected() { return {kFresh, kOld, true, {kNew}}; }

Observed found(std::optional<EndResult> result, bool may_lose) {
  Observed observed;
  observed.may_lose = may_lose;
  observed.save_status = may_lose ? 137 : 0;
  observed.resume_status = result ? 0 : 3;
  observed.result = std::move(result);
  observed.said = "truncated archive";
  return observed;
}

std::string outcome(const Observed& observed, const Expected& of = expected()) {
  const CaseResult judged = judge_save(of, observed, "killed");
  EXPECT_EQ(judged.verdict == CaseVerdict::fault, !judged.sentence.empty());
  return (judged.verdict == CaseVerdict::good ? "" : "fault: ") + judged.outcome;
}

TEST(JudgeSave, OldAndNewAreWhole) {
  EXPECT_EQ(outcome(found(kNew, true)), "whole, new");
  EXPECT_EQ(outcome(found(kNew, false)), "whole, new");
  EXPECT_EQ(outcome(found(kOld, true)), "whole, old");
}

TEST(JudgeSave, TheOldOneAfterASaveThatReportedSuccessIsLostWork) {
  EXPECT_EQ(outcome(found(kOld, false)), "fault: lost work");
}

TEST(JudgeSave, ToBeginAnewWhereACheckpointStoodIsLostWork) {
  EXPECT_EQ(outcome(found(kFresh, true)), "fault: lost work");
}

TEST(JudgeSave, ARefusalWhereACheckpointStoodIsTorn) {
  EXPECT_EQ(outcome(found(std::nullopt, true)), "fault: torn");
  EXPECT_THAT(judge_save(expected(), found(std::nullopt, true), "killed").sentence, HasSubstr("truncated archive"));
}

TEST(JudgeSave, ARefusalOfAFirstSaveIsLoud) {
  const Expected first{std::nullopt, std::nullopt, false, {kNew}};
  EXPECT_EQ(outcome(found(std::nullopt, true), first), "refused");
  EXPECT_EQ(outcome(found(std::nullopt, false), first), "fault: lost work") << "the save had reported success";
}

TEST(JudgeSave, PartsOfTwoSavesAreMixed) {
  EXPECT_EQ(outcome(found(result({"step 2", "a2", "b1"}), true)), "fault: mixed");
}

TEST(JudgeSave, PartsOfTwoSavesInOneLineAreMixed) {
  const Expected one_line{std::nullopt, result({"[(1, 'a3'), (1, 'b9')]"}), true, {result({"[(2, 'c5'), (2, 'd0')]"})}};
  EXPECT_EQ(outcome(found(result({"[(2, 'c5'), (1, 'b9')]"}), true), one_line), "fault: mixed");
  EXPECT_EQ(outcome(found(result({"[(2, 'c5'), (1, 'b8')]"}), true), one_line), "fault: silent");
}

TEST(JudgeSave, AnUndisturbedSaveThatEndsOtherwiseIsUnsteady) {
  Observed observed = found(result({"step 2", "a7", "b2"}), false);
  observed.undisturbed = true;
  EXPECT_EQ(outcome(observed), "fault: unsteady");
}

TEST(JudgeSave, APrefixOfOneSaveIsSilentDamage) {
  EXPECT_EQ(outcome(found(result({"step 2", "a2"}), true)), "fault: silent");
  EXPECT_EQ(outcome(found(result({}), true)), "fault: silent");
  EXPECT_EQ(outcome(found(result({"step 2", "a2", "?"}), true)), "fault: silent");
}

TEST(JudgeSave, AHangIsOneWhateverStandsThere) {
  Observed observed = found(kNew, true);
  observed.save_hung = true;
  EXPECT_EQ(outcome(observed), "fault: hang");
}

TEST(JudgeSave, ASaveMustSucceedWhereNothingFails) {
  Observed observed = found(kNew, true);
  observed.must_succeed = true;
  EXPECT_EQ(outcome(observed), "fault: save failed");
}

TEST(JudgeCheck, GoesByTheUsersStatus) {
  Observed observed = found(std::nullopt, true);
  EXPECT_EQ(judge_check(observed, "killed").verdict, CaseVerdict::fault);
  observed.resume_status = 0;
  EXPECT_EQ(judge_check(observed, "killed").outcome, "whole");
}

TEST(LastLine, IsTheLastThatSaysSomething) {
  EXPECT_EQ(last_line("a\nb\n\n  \n"), "b");
  EXPECT_EQ(last_line(""), "");
}

}  // namespace
}  // namespace lockstep::program
