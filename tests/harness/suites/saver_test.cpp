#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "harness/base/text.h"
#include "harness/suites/checkpoint/saver/search.h"
#include "harness/suites/faults/judge.h"
#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/program.h"
#include "harness/suites/power_loss/power_disk.h"
#include "tests/support/suite_run.h"
#include "tests/support/whole.h"

// A slice of every search over the saver library: the good code is silent, each planted mistake is found and named.

namespace lockstep {
namespace {

using support::expect_silent;
using support::fact;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

SuiteResult run(const std::string& section, const std::string& only = "") {
  return support::run_tried(saver_suite(), "name: slice\nlaboratory: saver\nsaver: {" + section + "}\n", only);
}

struct Slice {
  const char* name;
  std::string section, only;
  int64_t least_cases;
  const char *fact = "", *says = "";
};

class Searches : public testing::TestWithParam<Slice> {};

TEST_P(Searches, FindNothingInTheSaverAsItIs) {
  const Slice& slice = GetParam();
  const SuiteResult result = run(slice.section + ", planted: false", slice.only);
  expect_silent(result, slice.least_cases);
  EXPECT_THAT(fact(result, slice.fact), HasSubstr(slice.says));
}

const int kPoints = support::whole_or(1, 2), kDamages = support::whole_or(1, 3);

INSTANTIATE_TEST_SUITE_P(
    Saver, Searches,
    testing::Values(Slice{"kill", "search: kill, world_sizes: [1, 3], points: 8, process_points: 1", "",
                          7 * (8 + 2 * 8) + 14, "kill points of processes, SIGKILL on the machine's disk", "14"},
                    Slice{"schedules", "search: schedules, points: " + std::to_string(kPoints), "", 9 * kPoints},
                    Slice{"power", "search: power, world_sizes: [2], points: 3", "", 200,
                          "loads that took what no save had saved", "0"},
                    Slice{"corruption", "search: corruption, points: " + std::to_string(kDamages), "",
                          support::whole_or(1500, 5000), "clean loads", "with a word about damage: 0"},
                    Slice{"every_bad_input", "search: corruption", "failure==bad input", 13},
                    Slice{"errors", "search: errors, world_sizes: [1, 2], points: 12", "", 6 * 2 * 12 + 2},
                    Slice{"no_slow_file", "search: errors, world_sizes: [2]", "failure==slow", 6 * 2}),
    [](const auto& info) { return info.param.name; });

struct PlantedIn {
  const char *section, *mutant, *outcome;
  const char* says = "";
  const char* last_operation = "";
  bool always = true;  ///< else where tests take their time
};

class PlantedMistakes : public testing::TestWithParam<PlantedIn> {};

TEST_P(PlantedMistakes, AreFoundAndToldWithTheirTimeline) {
  const PlantedIn& planted = GetParam();
  if (!planted.always && !support::whole()) GTEST_SKIP() << "LOCKSTEP_WHOLE is not set";
  const SuiteResult result = run(planted.section, std::string("planted:") + planted.mutant);
  EXPECT_EQ(result.faults, 0) << (result.findings.empty() ? "" : result.findings[0].sentence);
  ASSERT_EQ(result.findings.size(), 1U) << "it is not found";
  const SuiteFinding& finding = result.findings[0];
  EXPECT_EQ(finding.verdict, CaseVerdict::planted);
  EXPECT_THAT(finding.outcome, HasSubstr(std::string("planted, found") + planted.outcome));
  EXPECT_THAT(finding.sentence, HasSubstr(planted.says));
  if (*planted.last_operation == '\0') return;
  ASSERT_THAT(finding.timeline, Not(IsEmpty()));
  EXPECT_THAT(finding.timeline.back().operation, HasSubstr(planted.last_operation));
}

constexpr const char* kKill = "search: kill, world_sizes: [1], points: 1, process_points: 1";
constexpr const char* kSchedules = "search: schedules, points: 1";
constexpr const char* kPower = "search: power, world_sizes: [1], points: 0";
constexpr const char* kErrors = "search: errors, world_sizes: [2], points: 1";

INSTANTIATE_TEST_SUITE_P(
    Saver, PlantedMistakes,
    testing::Values(PlantedIn{kKill, "delete_before_commit", ": torn"},
                    PlantedIn{kKill, "latest_before_commit", ": torn", "", "", false},
                    PlantedIn{kKill, "one_file_name", ": lost work", "", "", false},
                    PlantedIn{kKill, "skipped_committed", ": lost work", "is killed within its operation"},
                    PlantedIn{kSchedules, "exists_per_rank", ": mixed"},
                    PlantedIn{kSchedules, "one_file_name", "", "stops before its operation"},
                    PlantedIn{kPower, "no_folder_sync", ": lost work", "(ordered journal that flushes on rename)",
                              "the power goes"},
                    PlantedIn{kPower, "latest_before_commit", ": torn"},
                    PlantedIn{"search: corruption, points: 1", "sealed_damage", ": silent"},
                    PlantedIn{kErrors, "skipped_finished", ": told apart"}, PlantedIn{kErrors, "skipped_renamed", ""}),
    [](const auto& info) { return info.param.mutant + std::to_string(info.index); });

TEST(PlantedMistake, ThatIsNotFoundIsTheFault) {
  using namespace saver;
  const auto verdict = [](std::string_view harmless, bool is_found) {
    const auto search = [is_found] {
      return MutantFound{is_found, 9, {"torn", CaseVerdict::fault, 1, "It is torn."}};
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

// What a power loss may leave, model by model.

namespace lockstep::power {
namespace {

using testing::Contains;

/// What programs do in "/d", where "/d/b" may stand.
struct Done {
  DiskModel model;
  PowerDisk disk;
  int number = 0;
  std::map<std::string, int> open = {};

  explicit Done(DiskModel of, const std::string& stood = "") : model(of), disk(of) {
    disk.stand("/d", NodeType::folder);
    if (!stood.empty()) disk.stand("/d/b", NodeType::file, stood);
  }
  Done& create(const std::string& path) { return open[path] = disk.make(number++, path, NodeType::file), *this; }
  Done& write(const std::string& path, const std::string& bytes) { return disk.write(number++, open.at(path), 0, bytes), *this; }
  Done& resize(const std::string& path, uint64_t bytes) { return disk.resize(number++, disk.find(path), bytes), *this; }
  Done& rename(const std::string& from, const std::string& to) { return disk.rename(number++, from, to), *this; }
  Done& remove(const std::string& path) { return disk.remove(number++, path), *this; }
  Done& sync(const std::string& path) { return disk.sync_file(open.at(path)), *this; }
  Done& sync_folder(const std::string& path) { return disk.sync_folder(disk.find(path)), *this; }

  /// Every disk that may be left, as "name=bytes" in one line each.
  std::set<std::string> left() const {
    bool all = false;
    std::set<std::string> result;
    for (const Remains& remains : disk.ways(5000, 1, all)) {
      std::string line;
      for (const Standing& each : disk.standing(remains)) {
        if (each.type != NodeType::folder) line += each.path.substr(3) + "=" + each.bytes + " ";
      }
      result.insert(line);
    }
    EXPECT_TRUE(all);
    return result;
  }
};

Done replaced(DiskModel model, const std::string& stood = "") {
  Done done(model, stood);
  done.create("/d/a").write("/d/a", "new").rename("/d/a", "/d/b");
  return done;
}

TEST(PowerDisk, LosesWhatWasNotSyncedInAnySubset) {
  EXPECT_THAT(replaced(DiskModel::least, "old").left(), ElementsAre("a= b=old ", "a=new b=old ", "b= ", "b=new ", "b=old "));
}

TEST(PowerDisk, KeepsWhatWasSynced) {
  for (const DiskModel model : kDiskModels) {
    Done done(model, "old");
    done.create("/d/a").write("/d/a", "new").sync("/d/a").rename("/d/a", "/d/b");
    if (model == DiskModel::ordered) {
      EXPECT_THAT(done.left(), ElementsAre("a=new b=old ", "b=new "));
    }
    EXPECT_THAT(done.sync_folder("/d").left(), ElementsAre("b=new ")) << words_of(model);
  }
}

TEST(PowerDisk, FlushesOnARenameWhereTheModelDoes) {
  EXPECT_THAT(replaced(DiskModel::ordered, "old").left(), Contains("b= "));
  EXPECT_THAT(replaced(DiskModel::flush_on_rename, "old").left(), Not(Contains("b= ")));
  // It replaces nothing: nothing is flushed.
  EXPECT_THAT(replaced(DiskModel::flush_on_rename).left(), Contains("b= "));
}

TEST(PowerDisk, KeepsNamesInTheirOrderWithAJournal) {
  for (const DiskModel model : {DiskModel::ordered, DiskModel::least}) {
    Done done(model);
    done.create("/d/x").create("/d/y");
    if (model == DiskModel::ordered) {
      EXPECT_THAT(done.left(), ElementsAre("", "x= ", "x= y= "));
    } else {
      EXPECT_THAT(done.left(), ElementsAre("", "x= ", "x= y= ", "y= "));
    }
  }
}

TEST(PowerDisk, TearsAWriteAtSectors) {
  const std::string half(512, 'w'), hole(512, '\0'), whole(1024, 'w');
  const auto written = [&](DiskModel model) {
    return Done(model).create("/d/x").sync_folder("/d").write("/d/x", whole).left();
  };
  EXPECT_THAT(written(DiskModel::least),
              testing::UnorderedElementsAre("x= ", "x=" + half + " ", "x=" + hole + half + " ", "x=" + whole + " "));
  EXPECT_THAT(written(DiskModel::ordered), testing::UnorderedElementsAre("x= ", "x=" + half + " ", "x=" + whole + " "));
}

TEST(PowerDisk, TearsALongWriteAtNoMorePlacesThanAsked) {
  PowerDisk disk(DiskModel::ordered, 3);
  disk.write(1, disk.make(0, "/x", NodeType::file), 0, std::string(1 << 20, 'w'));
  bool all = false;
  EXPECT_EQ(disk.ways(100, 1, all).size(), 2U * 5U);
}

TEST(PowerDisk, CutsAFileShortAndLosesTheCut) {
  EXPECT_THAT(Done(DiskModel::least, "old").resize("/d/b", 1).left(), ElementsAre("b=o ", "b=old "));
}

TEST(PowerDisk, MovesAFileIntoAnotherFolder) {
  Done done(DiskModel::least);
  done.disk.stand("/e", NodeType::folder);
  done.create("/d/a").write("/d/a", "new").sync("/d/a").sync_folder("/d").rename("/d/a", "/e/b");
  EXPECT_THAT(done.left(), ElementsAre("a=new ", "b=new "));
  EXPECT_THAT(done.sync_folder("/e").left(), ElementsAre("a=new b=new ", "b=new "));
}

TEST(PowerDisk, SaysWhichOperationWasLost) {
  PowerDisk disk(DiskModel::least);
  disk.make(7, "/x", NodeType::file);
  EXPECT_EQ(disk.lost({1}).at(7), "not durable, lost");
  EXPECT_TRUE(disk.lost({0}).empty());
  EXPECT_NE(disk.hash({0}), disk.hash({1}));
}

TEST(PowerDisk, KnowsTheLastOperationOnAFile) {
  PowerDisk disk(DiskModel::least);
  const int node = disk.make(1, "/x", NodeType::file);
  disk.write(2, node, 0, "a");
  disk.write(3, node, 1, "b");
  EXPECT_EQ(disk.standing({0, 0, 0}).front().changed, 3);
  EXPECT_EQ(disk.standing({0, 0, 1}).front().changed, 2);
}

}  // namespace
}  // namespace lockstep::power

// Every outcome of a save, from what was expected and what was found.

namespace lockstep::program {
namespace {

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

struct Judged {
  const char* outcome;
  Observed observed;
  Expected expected = program::expected();
  const char* says = "";
};

TEST(JudgeSave, CallsEachOutcomeByItsName) {
  const EndResult rotten = result({"step 2", "a7", "b2"});
  const Expected first{std::nullopt, std::nullopt, false, {kNew}};
  const Expected one_line{std::nullopt, result({"[(1, 'a3'), (1, 'b9')]"}), true, {result({"[(2, 'c5'), (2, 'd0')]"})}};
  Observed undisturbed = found(rotten, false), hung = found(kNew, true), must_succeed = found(kNew, true);
  undisturbed.undisturbed = hung.save_hung = must_succeed.must_succeed = true;
  const std::vector<Judged> table{
      {"whole, new", found(kNew, true)},
      {"whole, new", found(kNew, false)},
      {"whole, old", found(kOld, true)},
      {"fault: lost work", found(kOld, false)},    // the save had reported success
      {"fault: lost work", found(kFresh, true)},   // it begins anew where a checkpoint stood
      {"fault: torn", found(std::nullopt, true), expected(), "truncated archive"},
      {"refused", found(std::nullopt, true), first},
      {"fault: lost work", found(std::nullopt, false), first},
      {"fault: mixed", found(result({"step 2", "a2", "b1"}), true)},
      {"fault: mixed", found(result({"[(2, 'c5'), (1, 'b9')]"}), true), one_line},
      {"fault: silent", found(result({"[(2, 'c5'), (1, 'b8')]"}), true), one_line},
      {"fault: unsteady", undisturbed},
      {"fault: silent", found(result({"step 2", "a2"}), true)},
      {"fault: silent", found(result({}), true)},
      {"fault: silent", found(result({"step 2", "a2", "?"}), true)},
      {"fault: hang", hung},
      {"fault: save failed", must_succeed},
  };
  for (const Judged& row : table) {
    const CaseResult judged = judge_save(row.expected, row.observed, "killed");
    const std::size_t which = static_cast<std::size_t>(&row - table.data());
    EXPECT_EQ((judged.verdict == CaseVerdict::good ? "" : "fault: ") + judged.outcome, row.outcome) << "row " << which;
    EXPECT_EQ(judged.verdict == CaseVerdict::fault, !judged.sentence.empty()) << "row " << which;
    EXPECT_THAT(judged.sentence, HasSubstr(row.says)) << "row " << which;
  }
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

// Which failures are planned at which operations.

using testing::AllOf;

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

// What the report tells of faults: who noticed, when, in which words, and what was not noticed.

namespace lockstep::faults {
namespace {

Noticed named(const std::string& kind, const std::string& by, double after_s, const std::string& words, int64_t lost = 0) {
  return {kind, by, after_s, words, lost};
}

const SuiteTable& table(const std::vector<SuiteTable>& tables, const std::string& title) {
  for (const SuiteTable& each : tables) {
    if (each.title == title) return each;
  }
  throw std::runtime_error("no table " + title);
}

/// As a trial of its own.
void noticed(const Noticed& one) {
  static int trials = 0;
  note(std::to_string(++trials), one);
}

constexpr const char* kFamilyTable = "Who noticed, by family of faults";
constexpr const char* kKindTable = "Who noticed what, when, in which words";

TEST(FaultFigures, TellWhoNoticedWhenInWhichWordsAndWhatWasLost) {
  Measurements m;
  const MeasuredTrial trial(m);
  noticed(named("kill", "died", 0.030, "rank 1 was killed"));
  noticed(named("kill", "died", 0.010, "rank 0 was killed", 2));
  noticed(named("kill", "died", 0.020, "rank 2 was killed"));
  noticed(named("flip_gradient", "compared", -1, "rank 0, step 0: gradients/w1 at element 6"));
  note_control("kill", true);
  const std::vector<SuiteTable> tables = Figures(m).tables();
  const SuiteTable& kinds = table(tables, kKindTable);
  ASSERT_EQ(kinds.rows.size(), 2U);
  EXPECT_THAT(kinds.rows[0].cells, ElementsAre("kill", "the rank is killed between two collectives", "died", "3 of 3", "20", "30", "2", "1 of 1", "rank 0 was killed"));
  EXPECT_THAT(kinds.rows[1].cells, ElementsAre("flip_gradient", "one bit of the rank's own gradient flips", "compared", "1 of 1", "at the end", "", "0", "",
                                               "rank 0, step 0: gradients/w1 at element 6"));
  EXPECT_EQ(kinds.rows[0].verdict, CaseVerdict::good);
  EXPECT_THAT(table(tables, kFamilyTable).rows[0].cells, ElementsAre("Processes that end", "1", "died", "3 of 3", "20", "30", "2", "1 of 1"));
}

TEST(FaultFigures, AProgramThatWasMissedAndATwinOfWhichSomethingWasSaidAreFaults) {
  Measurements m;
  const MeasuredTrial trial(m);
  noticed(named("stop", "hung", 1.0, "rank 0 is stopped by a signal"));
  noticed({"stop", "", -1, "", 0, "missed", CaseVerdict::fault});
  noticed(named("slow", "slow", 1.0, "rank 0 is slow, or in a loop"));
  note_control("slow", false);
  const SuiteTable kinds = table(Figures(m).tables(), kKindTable);
  EXPECT_EQ(kinds.rows[0].verdict, CaseVerdict::fault);
  EXPECT_EQ(kinds.rows[0].cells[3], "1 of 2; missed");
  EXPECT_EQ(kinds.rows[1].verdict, CaseVerdict::fault);
  EXPECT_EQ(kinds.rows[1].cells[7], "0 of 1");
  EXPECT_EQ(table(Figures(m).tables(), kFamilyTable).rows[0].verdict, CaseVerdict::fault);
}

TEST(FaultFigures, DrawEachProgramAgainstTheThresholds) {
  Measurements m;
  const MeasuredTrial trial(m);
  noticed(named("stop", "hung", 1.004, "stopped by a signal"));
  noticed(named("kill", "died", 0.030, "killed"));
  for (int i = 1; i <= 1000; ++i) measured().sample("from a stop to the alarm", 1e-3 * i);
  const std::vector<SuiteChart> charts = Figures(m).charts(1, 2);
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_TRUE(charts[0].by_row);
  EXPECT_EQ(charts[0].marks[0].at, 1000);
  EXPECT_EQ(charts[0].marks[1].at, 2000);
  ASSERT_EQ(charts[0].panels.size(), 2U);
  EXPECT_EQ(charts[0].panels[1].name, "Processes that live and give no sign");
  EXPECT_DOUBLE_EQ(charts[0].panels[1].series[0].points[0].x, 1004);
  // Of many durations the percentiles.
  ASSERT_EQ(charts[1].panels[0].series[0].points.size(), 100U);
  EXPECT_DOUBLE_EQ(charts[1].panels[0].series[0].points[98].x, 990);
  EXPECT_THAT(table(Figures(m).tables(), "Deaths and stops at random moments").rows[0].cells, ElementsAre("from a stop to the alarm", "1000", "500.5", "990.0", "1000.0"));
}

TEST(FaultFigures, OfNothingThereIsNothing) {
  const Measurements m;
  EXPECT_TRUE(Figures(m).tables().empty());
  EXPECT_TRUE(Figures(m).charts(1, 2).empty());
}

}  // namespace
}  // namespace lockstep::faults
