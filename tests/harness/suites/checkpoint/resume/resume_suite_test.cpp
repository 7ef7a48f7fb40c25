// The experiments of the suite of resuming, a slice of each.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/suites/checkpoint/resume/resume_config.h"
#include "tests/support/suite_run.h"

namespace lockstep::resume {
namespace {

using support::cases_of;
using support::findings_of;
using testing::HasSubstr;

TEST(ResumeSuite, FindsNothingInTheTrainerAndEveryKindThatIsLeftOut) {
  ResumeConfig config;
  config.stops = 3;
  config.pair_stops = {};
  const auto suite = make_stops(config);
  const SuiteResult result = support::run_tried(*suite);
  EXPECT_EQ(result.faults, 0) << findings_of(result);
  EXPECT_EQ(result.undecided, 0) << findings_of(result);
  EXPECT_EQ(result.trials, 3 * (6 + 18));
  EXPECT_EQ(cases_of(result, "stopped once, saved whole", "same bits"), 3);
}

TEST(ResumeSuite, NamesEveryKindAndEveryPairOfThem) {
  ResumeConfig config;
  config.stops = 31;
  config.pair_stops = {31};
  const auto suite = make_stops(config);
  const SuiteResult pairs = support::run_tried(*suite, "failure==mutant: two kinds are left out");
  EXPECT_EQ(pairs.cases, 18 * 17 / 2);
  EXPECT_EQ(pairs.faults + pairs.undecided, 0) << findings_of(pairs);
  EXPECT_GE(cases_of(pairs, "mutant: two kinds are left out", "named, each"), pairs.cases - 3);
  EXPECT_THAT(pairs.facts, testing::Contains(testing::Pair("kinds of state left out and named", "18 of 18")));
}

TEST(ResumeSuite, ReshardsWithoutADifferenceAndFindsEachMistake) {
  ResumeConfig config;
  config.worlds = {1, 3, 4};
  const auto suite = make_reshard(config);
  const SuiteResult result = support::run_tried(*suite);
  EXPECT_EQ(result.faults + result.undecided, 0) << findings_of(result);
  EXPECT_EQ(cases_of(result, "a step's rows fixed", "same bits, each sample once"), 27);
  EXPECT_EQ(cases_of(result, "each rank's rows fixed, a generator for each rank", "state equal, each sample once"), 18);
  EXPECT_EQ(cases_of(result, "mutant: the cursor is saved in batches", "found and named"), 6);
  EXPECT_EQ(cases_of(result, "mutant: each rank saves its own cursor", "found and named"), 6);
  EXPECT_EQ(cases_of(result, "mutant: a rank's moments are taken one element further on", "found and named"), 9);
}

TEST(ResumeSuite, KillsProcessesAndLosesNoProgress) {
  ResumeConfig config;
  config.ranks = 3;
  config.cycles = 54;
  config.kills_of_a_run = 3;
  const auto suite = make_cycles(config);
  const SuiteResult result = support::run_tried(*suite);
  EXPECT_EQ(result.faults + result.undecided, 0) << findings_of(result);
  int64_t killed = 0, ended = 0;
  for (const SuiteCount& row : result.table) {
    killed += row.outcome == "killed, progress kept" ? row.cases : 0;
    ended += row.outcome == "at the end the bits of the undisturbed run" ? row.cases : 0;
  }
  EXPECT_EQ(killed, 54);
  EXPECT_GE(ended, 18);
}

TEST(ResumeSuite, TellsProcessesToEndAndFindsWhoDoesNotAgree) {
  ResumeConfig config;
  config.signals = 6;
  const auto suite = make_preemption(config);
  for (const char* only :
       {"place==at a random moment", "place==in an evaluation && failure==SIGTERM to the launcher, three times",
        "place==while an asynchronous save is under way && failure==SIGUSR1 to one rank",
        "place==before the first step && failure==SIGUSR1 to all ranks"}) {
    const SuiteResult result = support::run_tried(*suite, only);
    EXPECT_GT(result.cases, 0) << only;
    EXPECT_EQ(result.faults + result.undecided, 0) << findings_of(result);
  }
  const SuiteResult alone = support::run_tried(*suite, "failure==mutant: a rank stops without agreement");
  EXPECT_EQ(cases_of(alone, "mutant: a rank stops without agreement", "found: stopped without agreement"), 6)
      << findings_of(alone);
  const SuiteResult torn = support::run_tried(*suite, "failure==mutant: a second signal ends the process");
  EXPECT_EQ(cases_of(torn, "mutant: a second signal ends the process", "found: torn by a signal"), 6)
      << findings_of(torn);
}

}  // namespace
}  // namespace lockstep::resume
