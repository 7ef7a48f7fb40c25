// A slice of every search over the saver library: the good code is silent, each planted mistake is found and named.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "harness/base/errors.h"
#include "harness/suites/checkpoint/saver/saver.h"
#include "harness/suites/checkpoint/saver/search.h"
#include "tests/support/suite_run.h"
#include "tests/support/whole.h"

namespace lockstep {
namespace {

using support::expect_silent;
using support::fact;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

SuiteResult run(const std::string& section, const std::string& only = "") {
  return support::run_tried(saver_suite(), "name: slice\nlaboratory: saver\nsaver: {" + section + "}\n", only);
}

/// The one planted mistake of that trial, which must be found.
SuiteFinding found(const std::string& section, const std::string& mutant) {
  const SuiteResult result = run(section, "planted:" + mutant);
  EXPECT_EQ(result.faults, 0) << (result.findings.empty() ? "" : result.findings[0].sentence);
  if (result.findings.size() != 1 || result.findings[0].verdict != CaseVerdict::planted) {
    ADD_FAILURE() << mutant << " is not found";
    return {};
  }
  return result.findings[0];
}

TEST(KillSearch, FindsNothingInTheSaverAsItIs) {
  const SuiteResult result = run("search: kill, world_sizes: [1, 3], points: 8, process_points: 1, planted: false");
  expect_silent(result, 7 * (8 + 2 * 8) + 14);
  EXPECT_EQ(fact(result, "kill points of processes, SIGKILL on the machine's disk"), "14");
}

TEST(KillSearch, FindsWhatIsPlanted) {
  const std::string section = "search: kill, world_sizes: [1], points: 1, process_points: 1";
  EXPECT_EQ(found(section, "delete_before_commit").outcome, "planted, found: torn");
  if (support::whole()) {
    EXPECT_EQ(found(section, "latest_before_commit").outcome, "planted, found: torn");
    EXPECT_EQ(found(section, "one_file_name").outcome, "planted, found: lost work");
  }
  const SuiteFinding finding = found(section, "skipped_committed");
  EXPECT_EQ(finding.outcome, "planted, found: lost work");
  EXPECT_THAT(finding.sentence, HasSubstr("is killed within its operation"));
  EXPECT_THAT(finding.timeline, Not(IsEmpty()));
}

TEST(ScheduleSearch, FindsNothingInTheSaverAsItIs) {
  const int points = support::whole_or(1, 2);
  const SuiteResult result = run("search: schedules, points: " + std::to_string(points) + ", planted: false");
  expect_silent(result, 9 * points);
}

TEST(ScheduleSearch, FindsWhatIsPlanted) {
  const std::string section = "search: schedules, points: 1";
  EXPECT_EQ(found(section, "exists_per_rank").outcome, "planted, found: mixed");
  EXPECT_THAT(found(section, "one_file_name").sentence, HasSubstr("stops before its operation"));
}

TEST(PowerSearch, FindsNothingInTheSaverAsItIs) {
  const SuiteResult result = run("search: power, world_sizes: [2], points: 3, planted: false");
  expect_silent(result, 200);
  EXPECT_EQ(fact(result, "loads that took what no save had saved"), "0");
}

TEST(PowerSearch, FindsWhatIsPlantedAndNamesTheModel) {
  const std::string section = "search: power, world_sizes: [1], points: 0";
  const SuiteFinding finding = found(section, "no_folder_sync");
  EXPECT_EQ(finding.outcome, "planted, found: lost work");
  EXPECT_THAT(finding.sentence, HasSubstr("(ordered journal that flushes on rename)"));
  EXPECT_EQ(finding.timeline.back().operation, "the power goes");
  EXPECT_EQ(found(section, "latest_before_commit").outcome, "planted, found: torn");
}

TEST(CorruptionSearch, FindsNothingInTheSaverAsItIs) {
  const int points = support::whole_or(1, 3);
  const SuiteResult result = run("search: corruption, points: " + std::to_string(points) + ", planted: false");
  expect_silent(result, support::whole_or(1500, 5000));
  EXPECT_THAT(fact(result, "clean loads"), HasSubstr("with a word about damage: 0"));
}

TEST(CorruptionSearch, NamesEveryBadInput) {
  const SuiteResult result = run("search: corruption", "failure==bad input");
  expect_silent(result, 13);
}

TEST(CorruptionSearch, SeesDamageThatNoSealShows) {
  EXPECT_EQ(found("search: corruption, points: 1", "sealed_damage").outcome, "planted, found: silent");
}

TEST(ErrorSearch, FindsNothingInTheSaverAsItIs) {
  const SuiteResult result = run("search: errors, world_sizes: [1, 2], points: 12, planted: false");
  expect_silent(result, 6 * 2 * 12 + 2);
}

TEST(ErrorSearch, TakesNoSlowFileForAHang) {
  const SuiteResult result = run("search: errors, world_sizes: [2], planted: false", "failure==slow");
  expect_silent(result, 6 * 2);
}

TEST(ErrorSearch, FindsWhatIsPlanted) {
  const std::string section = "search: errors, world_sizes: [2], points: 1";
  EXPECT_EQ(found(section, "skipped_finished").outcome, "planted, found: told apart");
  EXPECT_THAT(found(section, "skipped_renamed").outcome, HasSubstr("planted, found"));
}

TEST(PlantedMistake, ThatIsNotFoundIsTheFault) {
  using namespace saver;
  const auto verdict = [](std::string_view harmless, bool is_found) {
    const auto search = [is_found] {
      return MutantFound{.found = is_found, .tried = 9, .outcome = "torn", .sentence = "It is torn."};
    };
    const SuiteRun run;
    Slot slot(run, 0);
    return mutant_trial("no_lock", "any", harmless, search).run(slot)[0].verdict;
  };
  EXPECT_EQ(verdict("", true), CaseVerdict::planted);
  EXPECT_EQ(verdict("", false), CaseVerdict::fault);
  EXPECT_EQ(verdict("the lock holds", true), CaseVerdict::fault);
  EXPECT_EQ(verdict("the lock holds", false), CaseVerdict::good);
}

TEST(SaverConfig, NamesWhatIsMissing) { EXPECT_THROW(run("points: 3"), ConfigError); }

}  // namespace
}  // namespace lockstep
