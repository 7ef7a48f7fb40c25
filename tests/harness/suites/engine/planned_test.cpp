// Trials that carry what they run, and cases that end alike.

#include "harness/suites/engine/planned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::Field;

Planned planned(const std::string& name) {
  return {{name, "none", "here", 0},
          [name] { return std::vector<CaseResult>{{"ran " + name, CaseVerdict::good, 1, ""}}; }};
}

TEST(PlannedTrials, StandInTheirOrderAndRunWhatTheyCarry) {
  PlannedTrials trials;
  trials.add({planned("b"), planned("a")});
  trials.add({planned("c")});
  EXPECT_THAT(trials.trials(), ElementsAre(Field(&Trial::name, "b"), Field(&Trial::name, "a"), Field(&Trial::name, "c")));
  const auto worker = trials.worker();
  for (const Trial& trial : trials.trials())
    EXPECT_THAT(worker->run(trial), ElementsAre(Field(&CaseResult::outcome, "ran " + trial.name)));
}

TEST(PlannedTrialsDeathTest, HaveNamesOfTheirOwn) {
  EXPECT_DEATH(PlannedTrials().add({planned("a"), planned("a")}), "names of their own");
}

TEST(PlannedTrialsDeathTest, AreKnownWhenTheyRun) {
  PlannedTrials trials;
  trials.add({planned("a")});
  EXPECT_DEATH(trials.worker()->run({"b", "", "", 0}), "is known");
  EXPECT_DEATH(plan_named(std::vector<Planned>{planned("a")}, "b"), "is known");
}

TEST(PlanNamed, IsTheOneOfThatName) {
  const std::vector<Planned> plans{planned("a"), planned("b")};
  EXPECT_EQ(&plan_named(plans, "b"), &plans[1]);
}

TEST(CountAlike, CountsWithWhatEndedAlikeAlone) {
  std::vector<CaseResult> cases;
  EXPECT_FALSE(count_alike(cases, "whole", CaseVerdict::good));
  cases = {{"whole", CaseVerdict::fault, 1, "first"}, {"whole", CaseVerdict::good, 2, ""}, {"torn", CaseVerdict::good, 1, ""}};
  EXPECT_TRUE(count_alike(cases, "whole", CaseVerdict::good));
  EXPECT_TRUE(count_alike(cases, "torn", CaseVerdict::good, 5));
  EXPECT_FALSE(count_alike(cases, "torn", CaseVerdict::undecided));
  EXPECT_THAT(cases, ElementsAre(Field(&CaseResult::cases, 1), Field(&CaseResult::cases, 3), Field(&CaseResult::cases, 6)));
}

}  // namespace
}  // namespace lockstep
