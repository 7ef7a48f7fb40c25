#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/program.h"

// Every outcome of a save, from what was expected and what was found.

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

// Which failures are planned at which operations.

namespace lockstep::program {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Not;

Operation operation(const std::string& process, int64_t index, OperationKind kind) {
  Operation made;
  made.process = process;
  made.index = index;
  made.kind = kind;
  made.call = std::string(name_of(kind));
  made.path = "state";
  made.bytes = kind == OperationKind::write ? 100 : -1;
  made.flags = kind == OperationKind::open ? O_CREAT | O_WRONLY : 0;
  return made;
}

std::vector<Operation> save_by(const std::string& process) {
  return {operation(process, 1, OperationKind::open), operation(process, 2, OperationKind::write),
          operation(process, 3, OperationKind::sync), operation(process, 4, OperationKind::close),
          operation(process, 5, OperationKind::remove)};
}

std::vector<std::string> names_of(const FailurePlan& plan) {
  std::vector<std::string> names;
  for (const PlannedFailure& planned : plan.failures) names.push_back(planned.trial.name);
  return names;
}

TEST(WritersOf, AreInTheOrderOfTheirLineages) {
  EXPECT_THAT(writers_of({operation("0.10", 1, OperationKind::open), operation("0.2", 1, OperationKind::open),
                          operation("0", 1, OperationKind::open), operation("0.2.1", 1, OperationKind::open)}),
              ElementsAre("0", "0.2", "0.2.1", "0.10"));
}

TEST(PlanFailures, BeginsWithTwoTrialsInWhichNothingFails) {
  const FailurePlan plan = plan_failures(save_by("0"), {{"kill"}, 0, 0});
  EXPECT_THAT(names_of(plan), ElementsAre("none@1", "none@2", "kill@0:1", "kill@0:2", "kill@0:3", "kill@0:4", "kill@0:5"));
}

TEST(PlanFailures, TriesAnErrorWhereItCanHappen) {
  EXPECT_THAT(names_of(plan_failures(save_by("0"), {{"short_write"}, 0, 0})), ElementsAre("none@1", "none@2", "short_write@0:2"));
  EXPECT_THAT(names_of(plan_failures(save_by("0"), {{"disk_full"}, 0, 0})),
              ElementsAre("none@1", "none@2", "disk_full@0:1", "disk_full@0:2"));
  EXPECT_THAT(names_of(plan_failures(save_by("0"), {{"ENOSPC"}, 0, 0})), Not(testing::Contains("ENOSPC@0:5")));
}

TEST(PlanFailures, FindsNoSpaceWhereAFileThatStandsIsOpenedAndNotWhereTheKernelRefusesItFirst) {
  std::vector<Operation> operations = save_by("0");
  operations[0].existed = true;
  EXPECT_THAT(names_of(plan_failures(operations, {{"ENOSPC"}, 0, 0})), testing::Contains("ENOSPC@0:1"));
  EXPECT_THAT(names_of(plan_failures(operations, {{"disk_full"}, 0, 0})), Not(testing::Contains("disk_full@0:1")));
  operations[0].flags |= O_EXCL;
  EXPECT_THAT(names_of(plan_failures(operations, {{"ENOSPC"}, 0, 0})), Not(testing::Contains("ENOSPC@0:1")));
}

TEST(PlanFailures, HoldsEachWriterForEachOther) {
  std::vector<Operation> operations = save_by("0.1");
  for (const Operation& each : save_by("0.2")) operations.push_back(each);
  const FailurePlan plan = plan_failures(operations, {{"hold"}, 0, 0});
  EXPECT_EQ(plan.failures.size(), 2U + 5 + 5);
  EXPECT_EQ(plan.failures[2].trial.name, "hold@0:1-until-1");
  EXPECT_EQ(plan.failures[2].intervention.until, "0.2");
  EXPECT_EQ(plan.failures[2].trial.place, "writer 0, open");
}

TEST(PlanFailures, HoldsNoProcessForItsOwnChild) {
  std::vector<Operation> operations = save_by("0");
  for (const Operation& each : save_by("0.1")) operations.push_back(each);
  EXPECT_THAT(names_of(plan_failures(operations, {{"hold"}, 0, 0})), ElementsAre("none@1", "none@2"));
}

TEST(PlanFailures, SpreadsASampleEvenlyAndSaysSo) {
  std::vector<Operation> operations;
  for (int i = 1; i <= 101; ++i) operations.push_back(operation("0", i, OperationKind::write));
  const FailurePlan plan = plan_failures(operations, {{"kill"}, 5, 0});
  EXPECT_THAT(names_of(plan), ElementsAre("none@1", "none@2", "kill@0:1", "kill@0:26", "kill@0:51", "kill@0:76", "kill@0:101"));
  EXPECT_THAT(plan.coverage, ElementsAre(Coverage{"killed", 5, 101}));
}

TEST(PlanFailures, GivesEveryTrialAName) {
  std::vector<Operation> operations = save_by("0.1");
  for (const Operation& each : save_by("0.2")) operations.push_back(each);
  const std::vector<std::string> names = names_of(plan_failures(operations, {}));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

}  // namespace
}  // namespace lockstep::program
