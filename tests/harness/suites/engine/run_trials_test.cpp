// Trials of a made-up suite: selected, spread over slots, counted.

#include "harness/suites/engine/run_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// 40 trials; every seventh is a fault, one is undecided, trial 5 holds a thousand cases.
class MadeUp : public Suite {
 public:
  std::string subject() const override { return "made up"; }
  std::vector<std::string> plan() const override { return {}; }
  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> all;
    for (int i = 0; i < 40; ++i)
      all.push_back({"t" + std::to_string(i), i % 2 == 0 ? "kill" : "EIO", i < 20 ? "write" : "rank 1, rename", 0.5});
    return all;
  }
  std::unique_ptr<SuiteWorker> worker(const SuiteRun&, int) override {
    ++workers;
    struct Worker : SuiteWorker {
      explicit Worker(MadeUp& suite) : suite(suite) {}
      std::vector<CaseResult> run(const Trial& trial) override {
        ++suite.ran;
        const int number = std::stoi(trial.name.substr(1));
        if (number == suite.throws_at) throw MachineError("the disk is gone");
        if (number == suite.stops_at) suite.stop = 1;
        if (number == suite.planted_at) return {{"found: torn", CaseVerdict::planted, 1, "as it must", {}}};
        if (number == 5) return {{"refused", CaseVerdict::good, 1000, "", {}}};
        if (number == 9) return {{"not reached", CaseVerdict::undecided, 1, "it never came there", {}}};
        if (number % 7 == 0) return {{"torn", CaseVerdict::fault, 1, "trial " + trial.name, {{"rank 0", "write", "killed"}}}};
        return {{"whole", CaseVerdict::good, 1, "", {}}};
      }
      MadeUp& suite;
    };
    return std::make_unique<Worker>(*this);
  }

  std::vector<SuiteTable> tables() const override { return {{"trials", "", {{"ran", "", true}}, {{{std::to_string(ran)}}}, false}}; }
  std::vector<SuiteChart> charts() const override { return {{"by number", "", {}, {}, false, {}, {{"", {}}}}}; }

  std::atomic<int> workers = 0, ran = 0;
  int throws_at = -1, stops_at = -1, planted_at = -1;
  volatile int stop = 0;
};

TrialsDone run(MadeUp& suite, int jobs, const std::string& only = "", TrialOptions options = {}) {
  options.only = only;
  options.clock = [] { return 1.0; };
  return run_trials(suite, {"", jobs, &suite.stop, [](const std::string&) {}}, options);
}

std::vector<std::string> lines_of(const SuiteResult& result) {
  std::vector<std::string> lines;
  for (const SuiteCount& count : result.table)
    lines.push_back(count.failure + "|" + count.place + "|" + count.outcome + "|" + std::to_string(count.cases));
  return lines;
}

TEST(RunTrials, KeepsTablesAndChartsOfWhatRan) {
  MadeUp suite;
  const SuiteResult result = run(suite, 3).result;
  ASSERT_EQ(result.tables.size(), 1U);
  EXPECT_THAT(result.tables[0].rows[0].cells, ElementsAre("40"));
  ASSERT_EQ(result.charts.size(), 1U);
}

TEST(RunTrials, ListsAPlantedMistakeThatWasFoundAndCountsNoFault) {
  MadeUp suite;
  suite.planted_at = 3;
  const SuiteResult result = run(suite, 1).result;
  EXPECT_EQ(result.faults, 6);
  EXPECT_EQ(result.undecided, 1);
  EXPECT_EQ(std::ranges::count(result.findings, CaseVerdict::planted, &SuiteFinding::verdict), 1);
}

TEST(RunTrials, CountsCasesByFailurePlaceAndOutcome) {
  MadeUp suite;
  const SuiteResult result = run(suite, 1).result;
  EXPECT_THAT(lines_of(result),
              ElementsAre("kill|write|torn|2", "EIO|write|whole|7", "kill|write|whole|8", "EIO|write|refused|1000",
                          "EIO|write|torn|1", "EIO|write|not reached|1", "kill|rank 1, rename|whole|9",
                          "EIO|rank 1, rename|torn|2", "EIO|rank 1, rename|whole|8", "kill|rank 1, rename|torn|1"));
  EXPECT_EQ(result.trials, 40);
  EXPECT_EQ(result.cases, 1039);
  EXPECT_EQ(result.faults, 6);
  EXPECT_EQ(result.undecided, 1);
  EXPECT_EQ(result.findings.size(), 7U);
}

TEST(RunTrials, ComesToTheSameOnAnyNumberOfSlots) {
  MadeUp alone, together;
  const SuiteResult a = run(alone, 1).result, b = run(together, 4).result;
  EXPECT_EQ(lines_of(a), lines_of(b));
  EXPECT_EQ(together.workers, 4);
  ASSERT_EQ(a.findings.size(), b.findings.size());
  for (std::size_t i = 0; i < a.findings.size(); ++i) EXPECT_EQ(a.findings[i].trial, b.findings[i].trial);
}

TEST(RunTrials, ListsTheFirstFindingsOfARowAndCountsTheRest) {
  MadeUp suite;
  TrialOptions options;
  options.findings_a_row = 1;
  const SuiteResult result = run(suite, 2, "", options).result;
  EXPECT_EQ(result.findings.size(), 5U);
  EXPECT_EQ(result.findings_left_out, 2);
  EXPECT_EQ(result.faults, 6);
}

TEST(RunTrials, RunsOneByItsNameOrThoseOfAFailure) {
  MadeUp suite;
  EXPECT_EQ(run(suite, 2, "t7").result.trials, 1);
  EXPECT_EQ(run(suite, 2, "failure==kill").result.trials, 20);
  EXPECT_EQ(run(suite, 2, "failure==kill && place!=write").result.trials, 10);
  EXPECT_EQ(run(suite, 2, "place==rank 1, rename").result.trials, 20);
  EXPECT_EQ(run(suite, 2, "t99").result.trials, 0);
}

TEST(RunTrials, RefusesASelectionThatItCannotRead) {
  EXPECT_THROW(TrialFilter("outcome==torn"), ConfigError);
}

TEST(RunTrials, ThrowsWhatATrialThrows) {
  MadeUp suite;
  suite.throws_at = 3;
  EXPECT_THROW(run(suite, 2), MachineError);
  // With one slot none comes after it; a second one may have run all others before the first one threw.
  MadeUp alone;
  alone.throws_at = 3;
  EXPECT_THROW(run(alone, 1), MachineError);
  EXPECT_EQ(alone.ran, 4);
}

TEST(RunTrials, IsInterruptedBetweenTrials) {
  MadeUp suite;
  suite.stops_at = 3;
  const TrialsDone done = run(suite, 1);
  EXPECT_TRUE(done.interrupted);
  EXPECT_EQ(done.result.trials, 3) << "the one that was stopped does not count";
}

TEST(RunTrials, SaysHowFarItIs) {
  MadeUp suite;
  std::vector<std::size_t> done;
  TrialOptions options;
  int64_t faults = 0;
  options.on_progress = [&](const TrialProgress& progress) {
    done.push_back(progress.done);
    faults = progress.faults;
    EXPECT_EQ(progress.all, 40U);
  };
  run(suite, 3, "", options);
  EXPECT_EQ(done.size(), 40U);
  EXPECT_EQ(done.back(), 40U);
  EXPECT_EQ(faults, 6);
}

}  // namespace
}  // namespace lockstep
