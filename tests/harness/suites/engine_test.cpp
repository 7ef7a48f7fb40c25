#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "harness/base/text.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/engine/run_trials.h"
#include "harness/suites/engine/scheduler/scheduler.h"
#include "harness/suites/engine/suite.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

// Reading of configs that name a suite.

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Sizes {
  int64_t shards = 2;
  std::string path;
};

const std::array kFields{
    Field<Sizes>{{"vault.shards", Range{1, 8}, "", "shards"}, [](Sizes& s) -> FieldRef { return ref_to(s.shards); }},
    Field<Sizes>{{"vault.path", {}, "", "path"}, [](Sizes& s) -> FieldRef { return ref_to(s.path); }},
};

class Vault : public Suite {
 public:
  explicit Vault(Sizes sizes) : sizes(std::move(sizes)) {}
  std::string subject() const override { return std::to_string(sizes.shards); }
  std::vector<std::string> plan() const override { return {}; }
  std::vector<Trial> trials(const SuiteRun&) override { return {}; }
  Sizes sizes;
};

const SuiteKind kVault{"vault", "a vault",
                            [](const SuiteSource& source, Problems& problems) -> std::unique_ptr<Suite> {
                              Sizes sizes;
                              read_fields<Sizes>(source, kFields, sizes, problems);
                              return std::make_unique<Vault>(sizes);
                            },
                            [] { return nlohmann::ordered_json{{"type", "object"}}; }};

SuiteConfig read(const std::string& text, const std::vector<std::string>& set = {}) {
  const SuiteKind* const kinds[] = {&kVault};
  return read_suite(text, "c.yaml", set, kinds);
}

std::string problem_of(const std::string& text, const std::vector<std::string>& set = {}) {
  return support::thrown_by([&] { read(text, set); });
}

const std::string kText = "# Does it hold?\nname: held\nlaboratory: vault\nvault:\n  shards: 3\n";

TEST(SuiteConfigs, AreKnownByTheirKey) {
  EXPECT_TRUE(names_a_suite(kText));
  EXPECT_FALSE(names_a_suite("name: x\ntrainer: energy\n"));
  EXPECT_FALSE(names_a_suite("# suite: vault\nname: x\n"));
  EXPECT_FALSE(names_a_suite(""));
}

TEST(SuiteSchema, HasTheSectionOfEachOfSeveralKinds) {
  SuiteKind cellar = kVault, attic = kVault;
  cellar.name = "cellar";
  attic.name = "attic";
  const SuiteKind* const kinds[] = {&kVault, &cellar, &attic};
  const nlohmann::ordered_json schema = suite_schema(kinds);
  EXPECT_EQ(schema.at("properties").at("laboratory").at("enum"), (nlohmann::ordered_json{"vault", "cellar", "attic"}));
  for (const char* name : {"vault", "cellar", "attic"})
    EXPECT_EQ(schema.at("properties").at(name).at("description"), "a vault") << name;
}

TEST(SuiteConfigs, AreReadWithTheirSection) {
  const SuiteConfig config = read(kText);
  EXPECT_EQ(config.source.name, "held");
  EXPECT_EQ(config.source.question_text, "Does it hold?");
  EXPECT_EQ(config.suite->subject(), "3");
}

TEST(SuiteConfigs, TakeKeysOfTheCommandLine) {
  EXPECT_EQ(read(kText, {"vault.shards=5"}).suite->subject(), "5");
  EXPECT_THAT(problem_of(kText, {"vault.shards=50"}), HasSubstr("--set vault.shards=50"));
}

TEST(SuiteConfigs, SayWhatIsWrongAndWhere) {
  EXPECT_THAT(problem_of("name: x\nlaboratory: valt\n"), HasSubstr("c.yaml:2:13: unknown suite 'valt'; known are vault; did you mean"));
  EXPECT_THAT(problem_of("suite: vault\n"), HasSubstr("the key name is missing"));
  EXPECT_THAT(problem_of("name: a/b\nlaboratory: vault\n"), HasSubstr("c.yaml:1:7"));
  EXPECT_THAT(problem_of(kText + "  shard: 3\n"), HasSubstr("c.yaml:6:3"));
  EXPECT_THAT(problem_of(kText + "steps: 5\n"), HasSubstr("c.yaml:6:1"));
  EXPECT_THAT(problem_of("name: x\nlaboratory: vault\nvault: {shards: 9}\n"), HasSubstr("c.yaml:3:17"));
}

// Trials of a made-up suite: selected, spread over slots, counted.

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

// Families of schedules, played by processes that are made up.

namespace lockstep::scheduler {
namespace {

using testing::ElementsAre;

/// "abc ab soon": order, who stops and who goes on, how.
std::string in_short(const Family& family) {
  std::string text;
  for (const int process : family.order) text += static_cast<char>('a' + process);
  text += std::string(" ") + static_cast<char>('a' + family.stops) + static_cast<char>('a' + family.goes_on);
  return text + (family.soon ? " soon" : "") + (family.doubles ? " doubles" : "");
}

TEST(Families, OfTwoStopTheFirstAndThenTheOther) {
  const std::vector<Family> all = families_of(2);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(in_short(all[0]), "ab ab doubles");
  EXPECT_EQ(in_short(all[1]), "ba ba doubles");
}

TEST(Families, OfThreeAreThreeForEachOrder) {
  const std::vector<Family> all = families_of(3);
  ASSERT_EQ(all.size(), 18u);
  EXPECT_EQ(in_short(all[0]), "abc ab");
  EXPECT_EQ(in_short(all[1]), "abc ab soon");
  EXPECT_EQ(in_short(all[2]), "abc bc");
  EXPECT_EQ(in_short(all[17]), "cba ba");
}

/// What comes of processes of so many operations each.
struct End {
  std::vector<bool> preempted;
};

struct Played {
  std::vector<std::string> seen;
  bool there = false;
};

Played played(bool doubles, int64_t at, int64_t operations, std::size_t most = 100) {
  Played done;
  const auto play = [&](const Schedule& schedule) {
    End end;
    for (const Preemption& each : schedule.preemptions) end.preempted.push_back(each.at < operations);
    return end;
  };
  done.there = play_family({{0, 1}, 0, 1, false, doubles}, at, play, [&](const Schedule& schedule, const End&, bool is_double) {
    std::string text = is_double ? "double" : "single";
    for (const Preemption& each : schedule.preemptions)
      text += " " + std::to_string(each.process) + "@" + std::to_string(each.at) + ">" + std::to_string(each.to);
    done.seen.push_back(text);
    return done.seen.size() < most;
  });
  return done;
}

TEST(PlayFamily, PlaysTheSingleOneAndAllDoubleOnes) {
  EXPECT_THAT(played(false, 1, 2).seen, ElementsAre("single 0@1>1"));
  EXPECT_THAT(played(true, 1, 2).seen, ElementsAre("single 0@1>1", "double 0@1>1 1@0>0", "double 0@1>1 1@1>0"));
  EXPECT_TRUE(played(true, 1, 2).there);
}

TEST(PlayFamily, EndsWhereThereIsNoSuchOperationAndWhereItIsTold) {
  EXPECT_FALSE(played(true, 2, 2).there);
  EXPECT_THAT(played(true, 2, 2).seen, ElementsAre());
  EXPECT_THAT(played(true, 0, 9, 1).seen, ElementsAre("single 0@0>1"));
  EXPECT_EQ(played(true, 0, 9, 3).seen.size(), 3u);
}

// Processes that go on one at a time, and ranks among them that gather.

using checkpoint::Gathered;
using testing::HasSubstr;

class EachEngine : public testing::TestWithParam<Engine> {};

TEST_P(EachEngine, GivesTheTurnAsItIsTold) {
  Scheduler scheduler(3, {2, 0, 1}, GetParam());
  std::string order;
  scheduler.run([&](int process) {
    order += static_cast<char>('a' + process);
    if (process == 2) scheduler.give_way(2, 1, false);
    order += static_cast<char>('A' + process);
  });
  EXPECT_EQ(order, "cbBaAC");
}

TEST_P(EachEngine, WaitsForWhatAnotherDoesAndTellsWhenNobodyCan) {
  Scheduler scheduler(2, {0, 1}, GetParam());
  bool set = false;
  std::vector<bool> came(2);
  scheduler.run([&](int process) {
    if (process == 1) set = true;
    came[static_cast<std::size_t>(process)] = process == 0 ? scheduler.wait(0, [&] { return set; }) : scheduler.wait(1, [] { return false; });
  });
  EXPECT_THAT(came, ElementsAre(true, false));
  EXPECT_TRUE(scheduler.stalled());
}

TEST_P(EachEngine, HandsOnWhatAnProcessThrows) {
  Scheduler scheduler(2, {0, 1}, GetParam());
  EXPECT_THROW(scheduler.run([](int process) {
    if (process == 1) throw std::runtime_error("no");
  }),
               std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Scheduler, EachEngine, testing::Values(Engine::fibers, Engine::threads));

/// Ranks gather "first" and then "second"; `before(rank, group)` comes between. Their problems.
template <class Between>
std::vector<std::string> problems_of(int ranks, Between between) {
  Scheduler scheduler(ranks);
  Meeting meeting(scheduler, 0, ranks);
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  scheduler.run([&](int rank) {
    ScheduledGroup group(meeting, rank);
    const Gathered first = group.all_gather("first", std::to_string(rank), 10);
    EXPECT_TRUE(first);
    EXPECT_EQ(first.texts.at(1), "1");
    between(rank, group, scheduler);
    problems[static_cast<std::size_t>(rank)] = group.all_gather("second", "", 10).problem;
    group.end();
  });
  return problems;
}

TEST(ScheduledGroup, NoticesAnEndAtOnceAndTellsAllAlike) {
  const auto problems = problems_of(3, [](int rank, ScheduledGroup& group, Scheduler&) {
    if (rank == 1) group.end();
  });
  EXPECT_EQ(problems[0], "rank 1 ended (at 'second')");
  EXPECT_EQ(problems[2], problems[0]);
}

TEST(ScheduledGroup, TellsSomeAndEndsWhereAKillFallsWithinAGather) {
  const auto problems = problems_of(3, [](int rank, ScheduledGroup& group, Scheduler&) {
    if (rank == 1) group.end_within(1);
  });
  // Rank 0 had its text; rank 2 had not, and told rank 0 too late for this gather.
  EXPECT_EQ(problems[0], "");
  EXPECT_EQ(problems[2], "rank 1 ended (at 'second')");
}

TEST(ScheduledGroup, GivesUpOnSilenceAndNotOnSlowness) {
  const auto slow = problems_of(2, [](int rank, ScheduledGroup& group, Scheduler& scheduler) {
    for (int i = 0; rank == 1 && i < 9; ++i) {
      scheduler.advance(1, 9);
      group.progress();
    }
  });
  EXPECT_THAT(slow, ElementsAre("", ""));
  const auto silent = problems_of(2, [](int rank, ScheduledGroup&, Scheduler& scheduler) {
    // The other one begins to wait in the first second.
    for (int i = 0; rank == 1 && i < 2; ++i) scheduler.advance(1, i == 0 ? 1 : 11);
  });
  EXPECT_EQ(silent[0], "rank 1 gave no sign of progress for 10 s (at 'second')");
  // It had the other's text before that one left, and hears of it at the next gather.
  EXPECT_EQ(silent[1], "");
}

}  // namespace
}  // namespace lockstep::scheduler
