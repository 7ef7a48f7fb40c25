// Trials of a made-up suite: selected, spread over slots, counted.

#include "harness/suites/engine/run_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <stdexcept>

#include "harness/base/errors.h"
#include "tests/support/temp_folder.h"

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
      all.push_back({"t" + std::to_string(i), i % 2 == 0 ? "kill" : "EIO", i < 20 ? "write" : "rank 1, rename", 0.5, [this, i](Slot& slot) {
                       slot.keep<int>([this] { return ++slots; });
                       return played(i);
                     }});
    return all;
  }
  std::vector<CaseResult> played(int number) {
    ++ran;
    measured().add("ran");
    if (number == throws_at) throw MachineError("the disk is gone");
    if (number == disturbed_at && disturbances-- > 0) throw TrialDisturbed("rank 2");
    if (number == stops_at) stop = 1;
    if (number == planted_at) return {{"found: torn", CaseVerdict::planted, 1, "as it must", {}}};
    if (number == 5) return {{"refused", CaseVerdict::good, 1000, "", {}}};
    if (number == 9) return {{"not reached", CaseVerdict::undecided, 1, "it never came there", {}}};
    if (number % 7 == 0) return {{"torn", CaseVerdict::fault, 1, "trial t" + std::to_string(number), {{"rank 0", "write", "killed"}}}};
    return {{"whole", CaseVerdict::good, 1, "", {}}};
  }

  std::vector<SuiteTable> tables(const Measurements& m) const override {
    return {{"trials", "", {{"ran", "", true}}, {{{std::to_string(m.count("ran"))}}}, false}};
  }
  std::vector<SuiteChart> charts(const Measurements&) const override { return {{"by number", "", {}, {}, false, {}, {{"", {}}}}}; }

  std::atomic<int> slots = 0, ran = 0;
  int throws_at = -1, stops_at = -1, planted_at = -1, disturbed_at = -1;
  std::atomic<int> disturbances = 0;
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

TEST(RunTrials, TriesATrialAgainWhoseRankTheMachineKilled) {
  MadeUp suite;
  suite.disturbed_at = 3;
  suite.disturbances = 2;
  const SuiteResult result = run(suite, 1).result;
  EXPECT_EQ(result.undecided, 1) << "t9 alone";
  EXPECT_EQ(suite.ran, 42);
  EXPECT_EQ(result.tables.front().rows.front().cells.front(), "40") << "what a disturbed attempt measured counts for nothing";
}

TEST(RunTrials, HoldsItAgainstNobodyWhereThatGoesOn) {
  MadeUp suite;
  suite.disturbed_at = 3;
  suite.disturbances = 1000;
  const SuiteResult result = run(suite, 1).result;
  EXPECT_EQ(result.undecided, 2);
  const auto found = std::ranges::find(result.findings, "t3", &SuiteFinding::trial);
  ASSERT_NE(found, result.findings.end());
  EXPECT_THAT(found->sentence, HasSubstr("t3: rank 2 was killed by signal 9 (SIGKILL), which nobody here had sent"));
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
  EXPECT_LE(together.slots, 4) << "one resource a slot";
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

TEST(Combined, IsItsPartsOneAfterTheOther) {
  std::vector<std::unique_ptr<Suite>> parts;
  parts.push_back(std::make_unique<MadeUp>());
  const std::unique_ptr<Suite> whole = combined("parts", std::move(parts));
  const volatile int stop = 0;
  EXPECT_EQ(whole->subject(), "parts");
  EXPECT_EQ(whole->trials({"", 1, &stop, {}}).size(), 40U);
}

/// The measurements of both calls are in the tables of the second one.
TEST(RunTrials, GoesOnWhereAnInterruptedCallWas) {
  const TempFolder folder;
  const std::string path = folder / kTrialJournal;
  TrialOptions options;
  MadeUp stopped, going_on, whole;
  stopped.stops_at = 12;
  {
    TrialJournal journal(path, "key");
    options.journal = &journal;
    EXPECT_TRUE(run(stopped, 1, "", options).interrupted);
  }
  EXPECT_EQ(recorded_trials(folder.path()), 12);
  TrialJournal journal(path, "key");
  options.journal = &journal;
  const TrialsDone done = run(going_on, 3, "", options);
  EXPECT_EQ(done.recorded, 11) << "of trial 9 nothing could be said: it runs again";
  EXPECT_EQ(going_on.ran, 29);
  EXPECT_FALSE(done.interrupted);
  const SuiteResult expected = run(whole, 1).result;
  EXPECT_EQ(lines_of(done.result), lines_of(expected));
  EXPECT_EQ(done.result.faults, expected.faults);
  EXPECT_THAT(done.result.tables[0].rows[0].cells, ElementsAre("40"));
}

TEST(TrialJournal, BelievesNoDamagedLineAndNoneBehindIt) {
  const TempFolder folder;
  const std::string path = folder / kTrialJournal;
  {
    TrialJournal journal(path, "key");
    for (const char* name : {"t1", "t2", "t3"}) journal.append({name, {{"torn", CaseVerdict::fault, 1, "who did what", {}}}});
  }
  const std::string whole = read_text(path);
  EXPECT_NE(TrialJournal(path, "key").find("t3"), nullptr);
  const std::size_t second = whole.find("t2");
  const std::size_t first = whole.rfind('\n', second) + 1, end = whole.find('\n', second);
  // Each bit of the line, but that of its end.
  for (std::size_t at = first; at < end; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_text(path, damaged);
    const TrialJournal journal(path, "key");
    ASSERT_NE(journal.find("t1"), nullptr) << at;
    ASSERT_EQ(journal.find("t2"), nullptr) << at;
    ASSERT_EQ(journal.find("t3"), nullptr) << at;
  }
}

TEST(TrialJournal, IsBegunAnewWhereItIsOfOtherSettingsOrCameToItsEnd) {
  const TempFolder folder;
  const std::string path = folder / kTrialJournal;
  TrialRecord record{"t1", {{"torn", CaseVerdict::fault, 2, "who did what", {{"rank 0", "write", "killed"}}}}};
  record.measured.at_least("ulp", 0.1);
  record.measured.sample("seconds", 1.0 / 3);
  record.measured.keep("rows", "a", {1, 2});
  { TrialJournal(path, "key").append(record); }
  {
    const TrialJournal again(path, "key");
    ASSERT_NE(again.find("t1"), nullptr);
    EXPECT_EQ(again.find("t1")->cases[0].timeline[0].mark, "killed");
    EXPECT_EQ(again.find("t1")->measured.to_json(), record.measured.to_json());
  }
  EXPECT_EQ(TrialJournal(path, "another key").find("t1"), nullptr);
  { TrialJournal(path, "key").append(record); }
  EXPECT_EQ(TrialJournal(path, "key", true).find("t1"), nullptr) << "--fresh";
  {
    TrialJournal journal(path, "key");
    journal.append(record);
    journal.end();
  }
  EXPECT_EQ(TrialJournal(path, "key").find("t1"), nullptr) << "a call that came to its end is not gone on with";
}

/// A process that is killed while it writes leaves half a line.
TEST(TrialJournal, LeavesOutALineThatIsCutShort) {
  const TempFolder folder;
  const std::string path = folder / kTrialJournal;
  {
    TrialJournal journal(path, "key");
    journal.append({"t1"});
    journal.append({"t2"});
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  {
    TrialJournal journal(path, "key");
    EXPECT_NE(journal.find("t1"), nullptr);
    EXPECT_EQ(journal.find("t2"), nullptr);
    journal.append({"t3"});
  }
  EXPECT_NE(TrialJournal(path, "key").find("t3"), nullptr);
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
  EXPECT_GE(done.size(), 40U) << "after each trial, and now and then";
  EXPECT_EQ(done.back(), 40U);
  EXPECT_EQ(faults, 6);
}

/// One trial that ends when it has been told of.
class Long : public Suite {
 public:
  std::vector<std::string> plan() const override { return {}; }
  std::vector<Trial> trials(const SuiteRun&) override {
    return {{"long", "none", "here", 1, [this](Slot&) {
               told.wait(false);
               return std::vector<CaseResult>{{"whole", CaseVerdict::good, 1, "", {}}};
             }}};
  }
  std::atomic<bool> told = false;
};

TEST(RunTrials, SaysWhichTrialRunsWhileNoneEnds) {
  Long suite;
  volatile int stop = 0;
  TrialOptions options;
  options.clock = [] { return 1.0; };
  options.on_progress = [&](const TrialProgress& progress) {
    if (progress.done == 1) return;
    EXPECT_EQ(progress.longest, "long");
    suite.told = true;
    suite.told.notify_all();
  };
  const TrialsDone done = run_trials(suite, {"", 1, &stop, [](const std::string&) {}}, options);
  EXPECT_EQ(done.done, 1U);
}

TEST(RunTrials, StopWhereTheJournalWasRemoved) {
  const TempFolder folder;
  TrialJournal journal(folder.path() + "/trials.jsonl", "key");
  journal.append({"t0"});
  std::filesystem::remove(folder.path() + "/trials.jsonl");
  EXPECT_THROW(journal.append({"t1"}), MachineError);
}

}  // namespace
}  // namespace lockstep
