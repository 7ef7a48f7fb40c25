#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "harness/answer/results/words.h"
#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/cli/session/out_folder.h"
#include "harness/cli/session/prepare.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/read_matrix.h"
#include "harness/run/run_folder.h"
#include "reports/format.h"
#include "tests/support/fake_files.h"
#include "tests/support/json_schema.h"
#include "tests/support/said.h"
#include "tests/support/suite_config.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

Matrix named(const std::string& name) {
  Matrix matrix;
  matrix.name = name;
  matrix.file = name + ".yaml";
  return matrix;
}

/// The same where its folder is not there yet.
void write_deep(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_text(path, text);
}

TEST(OutFolder, IsOneProcesssAtATime) {
  const TempFolder folder;
  std::optional<OutFolder> first(std::in_place, folder / "o", named("a"));
  EXPECT_THROW(OutFolder(folder / "o", named("a")), ConfigError);
  first.reset();
  EXPECT_NO_THROW(OutFolder(folder / "o", named("a")));
}

TEST(OutFolder, IsSharedByTheTasksOfAnArrayAlone) {
  const TempFolder folder;
  std::optional<OutFolder> first(std::in_place, folder / "o", named("a"), real_files(), OutFolder::Hold::shared);
  EXPECT_NO_THROW(OutFolder(folder / "o", named("a"), real_files(), OutFolder::Hold::shared));
  EXPECT_THROW(OutFolder(folder / "o", named("a")), ConfigError);
  first.reset();
  const OutFolder alone(folder / "o", named("a"));
  EXPECT_THROW(OutFolder(folder / "o", named("a"), real_files(), OutFolder::Hold::shared), ConfigError);
}

TEST(OutFolder, ThatMayNotBeWrittenToIsToldWithWhatMendsIt) {
  const TempFolder folder;
  for (const int error : {EACCES, EPERM, EROFS}) {
    support::FakeFiles files;
    files.fail(0, error);
    EXPECT_THAT([&] { OutFolder(folder / "o", named("a"), files); },
                testing::ThrowsMessage<ConfigError>(HasSubstr("give --out a folder that user")));
  }
  support::FakeFiles files;
  files.fail(0, EIO);
  EXPECT_THROW(OutFolder(folder / "o", named("a"), files), MachineError);
}

TEST(OutFolder, SaysWhoseItIs) {
  const TempFolder folder;
  { const OutFolder out(folder / "o", named("a")); }
  EXPECT_NO_THROW(check_out_dir(named("a"), folder / "o"));
  EXPECT_THROW(check_out_dir(named("b"), folder / "o"), ConfigError);
}

TEST(OutFolder, RemovesThePlansRunsAndNoOthers) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "o/runs/mine");
  std::filesystem::create_directories(folder / "o/runs/other");
  const OutFolder out(folder / "o", named("a"));
  Plan plan;
  plan.runs.resize(2);
  plan.runs[0].id = "mine";
  plan.runs[1].id = "not there yet";
  out.remove_runs(plan);
  EXPECT_FALSE(std::filesystem::exists(folder / "o/runs/mine"));
  EXPECT_TRUE(std::filesystem::exists(folder / "o/runs/other"));
}

TEST(OutFolder, WritesEveryReport) {
  const TempFolder folder;
  const OutFolder out(folder / "o", named("a"));
  Results results;
  results.name = "a";
  EXPECT_THAT(out.write_reports(results), testing::IsEmpty());
  EXPECT_THAT(read_text(folder / "o/report.html"), HasSubstr("<html"));
  EXPECT_EQ(results_from_json(read_text(folder / "o/results.json"), "r").name, "a");
  EXPECT_THAT(read_text(folder / "o/junit.xml"), HasSubstr("<testsuite"));
  EXPECT_FALSE(read_text(folder / "o/summary.md").empty());
}

TEST(OutFolder, WritesTheResultsThoughAReportCannotBe) {
  const TempFolder folder;
  const OutFolder out(folder / "o", named("a"));
  write_deep(folder / "o/report.html/in the way", "");
  Results results;
  results.name = "a";
  const std::vector<std::string> problems = out.write_reports(results);
  ASSERT_THAT(problems, testing::SizeIs(1));
  EXPECT_THAT(problems[0], HasSubstr("report.html: cannot put the finished file in place"));
  EXPECT_EQ(results_from_json(read_text(folder / "o/results.json"), "r").name, "a");
  EXPECT_FALSE(read_text(folder / "o/junit.xml").empty());
  EXPECT_FALSE(read_text(folder / "o/summary.md").empty());
}

TEST(OutFolder, WritesTheResultsBeforeAnyDrawing) {
  const TempFolder folder;
  Results results;
  results.name = "a";
  std::vector<std::string> made;
  const std::vector<std::string> problems =
      write_formats(results, {"html", "no such format", "text", "json"}, folder.path(), &made);
  EXPECT_THAT(made,
              testing::ElementsAre(folder / "results.json", folder / "report.html", folder / "report.txt"));
  ASSERT_THAT(problems, testing::SizeIs(1));
  EXPECT_THAT(problems[0], HasSubstr("could not be written, internal error: unknown report format"));
}

// One damaged snapshot is no reason to lose what everything else said.
TEST(OutFolder, KeepsTheOtherStepsIfOneCannotBeKept) {
  const TempFolder folder;
  Plan plan;
  plan.matrix = named("a");
  Results results;
  for (const char* name : {"one", "two"}) {
    Cell& cell = plan.matrix.cells.emplace_back();
    cell.name = name;
    CellResult& result = results.cells.emplace_back();
    result.scenario = name;
    result.run = name;
    result.reference_run = name;
    result.mechanism.emplace();
    result.mechanism->first_divergence.emplace();
    result.mechanism->first_divergence->step = 3;
  }
  const OutFolder out(folder / "o", plan.matrix);
  write_deep(folder / "o/runs/one/rank-0.trace", "not a trace");
  std::filesystem::create_directories(folder / "o/runs/two");
  {
    TraceWriter writer(folder / "o/runs/two/rank-0.trace",
                       {"h", 0, 1, "energy", TraceLevel::hash, "emulated"});
    writer.finish();
  }
  const std::vector<std::string> problems = out.write_replays(plan, results);
  ASSERT_THAT(problems, testing::SizeIs(1));
  EXPECT_THAT(problems[0], HasSubstr("replay/one: the first step at which one differs was not saved: "));
  EXPECT_EQ(results.cells[0].replay, "");
  EXPECT_THAT(results.cells[1].replay, HasSubstr("replay/two/replay.yaml"));
}

TEST(OutFolder, RemovesWhatAKilledProcessWasWriting) {
  const TempFolder folder;
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const std::string left = "." + std::to_string(gone) + ".0.tmp",
                    living = "." + std::to_string(::getppid()) + ".0.tmp";
  const std::vector<std::string> names = {"o/results.json", "o/runs/a/done", "o/replay/a/replay.yaml", "o/replay/kill-0.sh", "o/work/slot-0/run/run.json"};
  for (const std::string& name : names) {
    write_deep(folder / (name + left), "");
    write_deep(folder / (name + living), "");
  }
  std::optional<OutFolder> holder(std::in_place, folder / "o", named("a"));
  for (const std::string& name : names) {
    EXPECT_FALSE(std::filesystem::exists(folder / (name + left))) << name;
    EXPECT_TRUE(std::filesystem::exists(folder / (name + living))) << name;
  }
  write_text(folder / ("o/done" + left), "");
  EXPECT_THROW(OutFolder(folder / "o", named("a")), ConfigError);
  EXPECT_TRUE(std::filesystem::exists(folder / ("o/done" + left))) << "another process holds the folder";
}

TEST(OutFolder, SaysWhichRunCannotBeRemoved) {
  const TempFolder folder;
  support::FakeFiles files;
  const OutFolder out(folder / "o", named("a"), files);
  Plan plan;
  plan.runs.resize(1);
  plan.runs[0].id = "mine";
  files.fail(files.operations.size(), EACCES);
  try {
    out.remove_runs(plan);
    FAIL() << "nothing was thrown";
  } catch (const MachineError& error) {
    EXPECT_EQ(error.what(), (folder / "o/runs/mine") + ": cannot be removed: Permission denied");
  }
}

TEST(OutFolder, KeepsTheReportsThatADiskStillTook) {
  const TempFolder folder;
  support::FakeFiles files;
  const OutFolder out(folder / "o", named("a"), files);
  Results results;
  results.name = "a";
  // results.json takes 8 operations; the disk is full from the next file on.
  files.fail(files.operations.size() + 8, ENOSPC, 1000);
  const std::vector<std::string> problems = out.write_reports(results);
  const auto left = std::ranges::count_if(report_formats(), [](const ReportFormat& it) { return !it.file_name.empty(); });
  ASSERT_EQ(problems.size(), static_cast<std::size_t>(left) - 1);
  for (const std::string& problem : problems) EXPECT_THAT(problem, HasSubstr("No space left on device"));
  EXPECT_EQ(results_from_json(read_text(folder / "o/results.json"), "r").name, "a");
}

TEST(OutFolder, SaysWhereItCannotBeMade) {
  const TempFolder folder;
  write_text(folder / "file", "");
  EXPECT_THROW(OutFolder(folder / "file/o", named("a")), MachineError);
}

TEST(StepSummary, IsAppended) {
  const TempFolder folder;
  write_text(folder / "summary", "before\n");
  Results results;
  results.name = "mine";
  EXPECT_EQ(append_step_summary(folder / "summary", results), "");
  EXPECT_THAT(read_text(folder / "summary"),
              testing::AllOf(testing::StartsWith("before\n"), HasSubstr("mine")));
  EXPECT_EQ(append_step_summary(folder / "no/summary", results),
            (folder / "no/summary") + ": the step summary cannot be written: No such file or directory");
  support::FakeFiles files;
  files.fail(1, ENOSPC);
  EXPECT_EQ(append_step_summary(folder / "summary", results, files),
            (folder / "summary") + ": the step summary cannot be written: No space left on device");
  EXPECT_THAT(files.operations, testing::ElementsAre("append summary", HasSubstr("write "), "close summary"));
}

// What is declared of a judgement is remembered with the runs: when each was first planned, and not later.

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kMatrix =
    "name: x\nsteps: 20\nquestion: outcome\nseeds: 0..4\ncertify_steps: 0\nforced_steps: []\n"
    "primary: {metric: accuracy_24, margin: 0.03, alpha: 0.05}\n"
    "reference: {layout: 1x24}\naxes: {layout: [8x3], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

class Declared : public testing::Test {
 protected:
  Plan plan(const std::vector<std::string>& set = {}, const std::string& seeds = "") {
    return make_plan(parse_matrix(kMatrix, "x.yaml", {set, "", seeds, ""}), folder_.path(), {"b", "l", "i", "d"});
  }
  /// As `lockstep run` does: notes, then runs.
  void run(const std::vector<std::string>& set = {}, const std::string& seeds = "") {
    const Plan planned = plan(set, seeds);
    note_declared(planned, folder_.path());
    finish(planned);
  }
  void finish(const Plan& planned) {
    for (const PlannedRun& run : planned.runs)
      std::filesystem::create_directories(run_folder(folder_.path(), run.id));
  }
  Declaration found(const std::vector<std::string>& set = {}, const std::string& seeds = "") {
    return declaration_of(plan(set, seeds), folder_.path());
  }
  /// "15 runs, 0 declared before, 15 after; margin 0.03, now 0.3 of 15".
  std::string words(const std::vector<std::string>& set = {}, const std::string& seeds = "") {
    const Declaration d = found(set, seeds);
    std::string text = fmt::format("{} runs, {} declared before, {} after", d.runs, d.before, d.changed);
    for (const DeclaredChange& change : d.changes) text += fmt::format("; {} {}, now {} of {}", change.what, change.was, change.is, change.runs);
    return text;
  }
  std::string path() const { return folder_ / "declared.json"; }
  const TempFolder folder_;
};

TEST_F(Declared, BeforeTheRunsIsKnownFromTheRecord) {
  run();
  run();  // and stays so however often the runs are used again
  EXPECT_EQ(words(), "15 runs, 15 declared before, 0 after");
}

// All runs are used again, and the verdict may turn: the sentence must not stand under both.
TEST_F(Declared, WhateverDefinesTheJudgementIsNoticedWhereItIsChangedAfterTheRuns) {
  run();
  run({"primary.margin=0.3"});
  EXPECT_EQ(words(), "15 runs, 15 declared before, 0 after") << "what was declared first";
  support::Said said;
  for (const std::vector<std::string>& set : std::vector<std::vector<std::string>>{
           {"primary.margin=0.3"}, {"primary.metric=accuracy_256"}, {"primary.alpha=0.1"}, {"primary.target=0.4"},
           {"seeds=auto"}, {"primary.test=sign"}, {"primary.margin=0.02", "primary.alpha=0.1"}})
    said(fmt::format("{}", fmt::join(set, " ")), words(set));
  Plan asked = plan();
  asked.matrix.question = "mechanism";
  ASSERT_EQ(declaration_of(asked, folder_.path()).changes.size(), 1U);
  EXPECT_EQ(declaration_of(asked, folder_.path()).changes[0].what, "question");
}

TEST_F(Declared, RunsThatAreAddedLaterCountByThemselves) {
  run({}, "0..2");
  run({"primary.margin=0.02"}, "0..4");
  EXPECT_EQ(words({"primary.margin=0.02"}, "0..4"), "15 runs, 6 declared before, 9 after; margin 0.03, now 0.02 of 9");
}

TEST_F(Declared, OfRunsOfAnEarlierVersionIsNotKnown) {
  finish(plan());
  run();
  run();
  EXPECT_EQ(words(), "15 runs, 0 declared before, 0 after");
}

// Runs are done anew to the same bits: whoever saw them has seen them.
TEST_F(Declared, IsRememberedWhereTheRunsAreRemovedAndDoneAnew) {
  run();
  note_undeclared(plan(), folder_.path());
  std::filesystem::remove_all(folder_ / "runs");
  run({"primary.margin=0.3"});
  EXPECT_EQ(found({"primary.margin=0.3"}).changed, 15);
  // Of an earlier version too, which left runs and no record.
  std::filesystem::remove(path());
  note_undeclared(plan(), folder_.path());
  std::filesystem::remove_all(folder_ / "runs");
  run();
  EXPECT_EQ(found().before + found().changed, 0);
}

TEST_F(Declared, OfADamagedRecordIsNotKnownAndSaid) {
  run();
  std::string text = read_text(path());
  text[text.find("0.03")] = '9';
  for (const std::string& content : {text, std::string("{"), std::string("[]")}) {
    write_text(path(), content);
    EXPECT_EQ(found().before + found().changed, 0);
  }
  std::vector<std::string> said;
  note_declared(plan(), folder_.path(), [&said](const std::string& line) { said.push_back(line); });
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("declared.json: "), HasSubstr("for the runs here it is unknown when"))));
  EXPECT_EQ(found().before + found().changed, 0) << "the runs lie there, and nobody knows since when";
}

TEST_F(Declared, IsWrittenOnceAndWhole) {
  support::FakeFiles files;
  note_declared(plan(), folder_.path(), nullptr, files);
  EXPECT_THAT(files.operations, Contains("rename declared.json.tmp declared.json"));
  const std::size_t once = files.operations.size();
  note_declared(plan({"primary.margin=0.3"}), folder_.path(), nullptr, files);
  EXPECT_EQ(files.operations.size(), once) << "a record is never replaced";
}

/// Launches nothing, and sees whether the record was there before.
class DeclaredLaunch : public Declared {
 protected:
  LaunchReport launch(Files& files) {
    Prepared prepared;
    prepared.out_dir = folder_.path();
    prepared.identity = {"b", "l", "i", "d"};
    prepared.plan = plan();
    InterimSteps steps;
    steps.files = &files;
    steps.launch = [this](const Prepared& launched) {
      ++launches_;
      noted_ = declaration_of(launched.plan, folder_.path()).before;
      return LaunchReport{};
    };
    return launch_interim_analyses(prepared, steps);
  }
  int launches_ = 0, noted_ = 0;
};

TEST_F(DeclaredLaunch, StandsBeforeAnyRunStarts) {
  support::FakeFiles files;
  launch(files);
  EXPECT_EQ(noted_, 15);
}

TEST_F(DeclaredLaunch, NothingRunsWhereItCannotBeWritten) {
  // Each operation of the write by itself: whatever the disk refuses, no run may begin without its record.
  support::FakeFiles whole;
  launch(whole);
  std::filesystem::remove(path());
  launches_ = 0;
  for (std::size_t i = 0; i < whole.operations.size(); ++i) {
    support::FakeFiles files;
    files.fail(i, ENOSPC);
    try {
      launch(files);
    } catch (const MachineError& error) {
      EXPECT_EQ(launches_, 0) << whole.operations[i];
      EXPECT_THAT(error.what(), HasSubstr(folder_.path()));
    }
    // What a crash leaves is the old file or the new one.
    const Declaration left = declaration_of(plan(), folder_.path());
    EXPECT_TRUE(left.before == 0 || left.before == 15) << whole.operations[i];
    std::filesystem::remove(path());
    launches_ = 0;
  }
}

constexpr const char* kInterimMatrix =
    "name: x\nsteps: 20\nquestion: outcome\nseeds: auto\nseeds_auto: {first: 2, step: 2, most: 8, budget_s: "
    "BUDGET}\n"
    "certify_steps: 0\nforced_steps: []\nreference: {layout: 1x24}\n"
    "axes: {layout: [8x3, 4x6], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

/// Runs that take one second each, and cells that are decided at a number of seeds that the test plants.
class InterimAnalyses : public testing::Test {
 protected:
  Prepared prepare(const std::string& budget = "0") {
    std::string text = kInterimMatrix;
    text.replace(text.find("BUDGET"), 6, budget);
    Prepared prepared;
    prepared.out_dir = folder_.path();
    prepared.identity = {"b", "l", "i", "d"};
    prepared.plan = make_plan(parse_matrix(text, "x.yaml", {}), prepared.out_dir, prepared.identity);
    return prepared;
  }

  InterimSteps steps() {
    InterimSteps steps;
    steps.launch = [this](const Prepared& prepared) { return launch(prepared); };
    steps.judge = [this](const Prepared& prepared, const LaunchReport& report) {
      return judge(prepared, report);
    };
    steps.say = [this](const std::string& line) { said_.push_back(line); };
    steps.clock = [this] { return now_; };
    return steps;
  }

  LaunchReport launch(const Prepared& prepared) {
    LaunchReport report;
    launched_.push_back(0);
    for (const PlannedRun& run : prepared.plan.runs) {
      if (run.reused) continue;
      if (interrupt_after_ == 0) {
        report.interrupted = true;
        return report;
      }
      --interrupt_after_;
      now_ += 1;
      ++launched_.back();
      if (run.cell == fails_) {
        report.failures.push_back({run.id, FailureKind::died, 0, 1, "", "", {}});
        continue;
      }
      ++report.finished;
      const std::string dir = run_folder(prepared.out_dir, run.id);
      prepare_run_folder(dir, run, prepared.identity);
      write_done(dir, run, prepared.identity, 1);
    }
    return report;
  }

  Results judge(const Prepared& prepared, const LaunchReport& report) {
    Results results;
    for (const Cell& cell : prepared.plan.matrix.cells) {
      CellResult& result = results.cells.emplace_back();
      result.scenario = cell.name;
      const int n = static_cast<int>(seeds_of(prepared.plan.matrix, cell).size());
      const auto planted = decided_at_.find(cell.name);
      if (cell.name == fails_ && !report.failures.empty()) {
        result.verdict = VerdictKind::failed;
        continue;
      }
      Outcome& outcome = result.outcome.emplace();
      outcome.n = n;
      outcome.sequential.emplace();
      result.verdict = planted != decided_at_.end() && n >= planted->second ? VerdictKind::equivalent
                                                                            : VerdictKind::inconclusive;
    }
    return results;
  }

  /// Seeds of each cell once they are taken. `report_` is of that, and `launched_` and `said_` go on.
  std::vector<std::size_t> taken(const std::string& budget = "0") {
    Prepared prepared = prepare(budget);
    report_ = launch_interim_analyses(prepared, steps());
    std::vector<std::size_t> counts;
    for (const Cell& cell : prepared.plan.matrix.cells)
      counts.push_back(seeds_of(prepared.plan.matrix, cell).size());
    return counts;
  }

  TempFolder folder_;
  std::map<std::string, int> decided_at_{
      {"8x3", 2}, {"8x3 lr_scale=0.125", 4}, {"4x6", 6}, {"4x6 lr_scale=0.125", 2}};
  std::string fails_;
  int interrupt_after_ = 1 << 20;
  double now_ = 0;
  std::vector<int> launched_;  ///< runs of each launch
  LaunchReport report_;
  std::vector<std::string> said_;
};

TEST_F(InterimAnalyses, AddSeedsToTheUndecidedAloneAndTakeTheSameLooksFromFinishedRuns) {
  EXPECT_THAT(taken(), ElementsAre(2, 4, 6, 2));
  // Two seeds of four cells and their reference; then two of two cells and the reference; then of one.
  EXPECT_THAT(launched_, ElementsAre(10, 6, 4));
  EXPECT_EQ(report_.finished, 20);
  EXPECT_EQ(report_.reused, 0) << "what this call ran is not reused";
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_THAT(said_[0], HasSubstr("interim analysis 1 of 4: 2 cells undecided, which now get 4 seeds"));
  launched_.clear();
  EXPECT_THAT(taken(), ElementsAre(2, 4, 6, 2));
  EXPECT_THAT(launched_, ElementsAre(0));
  EXPECT_EQ(report_.reused, 20);
}

TEST_F(InterimAnalyses, StopAtTheMostSeeds) {
  decided_at_.clear();
  EXPECT_THAT(taken(), ElementsAre(8, 8, 8, 8));
  EXPECT_EQ(launched_.size(), 4u);
}

TEST_F(InterimAnalyses, StopAtTheBudgetAndEndThereAgainUnlessTheyAreForgotten) {
  // The second look begins after 10 s, the third would after 16.
  EXPECT_THAT(taken("12"), ElementsAre(2, 4, 4, 2));
  EXPECT_THAT(said_.back(), HasSubstr("the budget of 12 s is spent"));
  EXPECT_THAT(taken("12"), ElementsAre(2, 4, 4, 2));
  forget_interim_analyses(folder_.path());
  EXPECT_THAT(taken("12"), ElementsAre(2, 4, 6, 2)) << "nothing is spent on runs that are there";
}

TEST_F(InterimAnalyses, GoOnWithALargerBudget) {
  taken("12");
  EXPECT_THAT(taken("60"), ElementsAre(2, 4, 6, 2));
}

TEST_F(InterimAnalyses, GoOnAfterAnInterruptionWithinALook) {
  interrupt_after_ = 13;
  taken("12");
  EXPECT_TRUE(report_.interrupted);
  interrupt_after_ = 1 << 20;
  now_ += 1000;  // what passes between two calls is nobody's
  launched_.clear();
  EXPECT_THAT(taken("12"), ElementsAre(2, 4, 4, 2));
  EXPECT_FALSE(report_.interrupted);
  EXPECT_THAT(launched_, ElementsAre(0, 3)) << "the second look had begun and is ended";
}

TEST_F(InterimAnalyses, DoNotTryAFailedRunAgain) {
  fails_ = "8x3";
  EXPECT_THAT(taken(), ElementsAre(2, 4, 6, 2));
  EXPECT_EQ(report_.failures.size(), 2u);
  EXPECT_THAT(launched_, ElementsAre(10, 6, 4));
}

// What they spent would count against looks that begin anew.
TEST_F(InterimAnalyses, SayWhatKeepsThemFromBeingForgotten) {
  forget_interim_analyses(folder_.path());
  support::FakeFiles files;
  files.fail(0, EACCES);
  try {
    forget_interim_analyses(folder_.path(), files);
    FAIL() << "nothing was thrown";
  } catch (const MachineError& error) {
    EXPECT_EQ(error.what(), (folder_ / "looks.json") + ": cannot be removed: Permission denied");
  }
}

TEST_F(InterimAnalyses, AreNotLaunchedWhereTheirHistoryCannotBeWritten) {
  support::FakeFiles files;
  files.fail(0, ENOSPC);
  Prepared prepared = prepare();
  InterimSteps through = steps();
  through.files = &files;
  EXPECT_THROW(launch_interim_analyses(prepared, through), MachineError);
  EXPECT_THAT(launched_, IsEmpty());
}

TEST_F(InterimAnalyses, PassOverAFileThatCannotBeUnderstoodAndNameIt) {
  const std::vector<std::string> wrongs{"",
                                        "[]",
                                        "{",
                                        "{\"of\": 3}",
                                        std::string(200000, '['),
                                        R"({"begun": "two", "of": "x", "seconds": 1})",
                                        R"({"begun": 99999999999, "of": "x", "seconds": 1})",
                                        R"({"begun": 1, "of": "x", "seconds": -1})"};
  for (const std::string& wrong : wrongs) {
    write_text(folder_ / "looks.json", wrong);
    said_.clear();
    EXPECT_THAT(taken(), ElementsAre(2, 4, 6, 2));
    ASSERT_FALSE(said_.empty()) << wrong.substr(0, 60);
    EXPECT_THAT(said_.front(), HasSubstr(folder_ / "looks.json: "));
    EXPECT_THAT(said_.front(), HasSubstr("it is ignored, and the time budget starts now"));
    EXPECT_THAT(read_text(folder_ / "looks.json"), HasSubstr("schema_version")) << "and written anew";
  }
}

TEST_F(InterimAnalyses, AMatrixWithoutThemIsLaunchedOnce) {
  Prepared prepared = prepare();
  prepared.plan.matrix.seeds_auto.on = false;
  launch_interim_analyses(prepared, steps());
  EXPECT_EQ(launched_.size(), 1u);
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "looks.json"));
}

// Configs that name a suite: those of the repository, their schema, and what a session makes of them.

using testing::Not;

namespace fs = std::filesystem;

TEST(SuiteConfigs, AllReadAndAskAQuestion) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string text = read_file(entry.path().string()).text;
    EXPECT_EQ(names_a_suite(text), support::is_suite_config(entry.path())) << entry.path();
    if (!names_a_suite(text)) continue;
    ++count;
    const SuiteConfig config = read_suite(text, entry.path().string(), {}, suite_kinds());
    EXPECT_EQ(config.source.name, entry.path().stem().string());
    EXPECT_TRUE(config.source.question_text.ends_with("?")) << config.source.question_text;
    EXPECT_THAT(config.suite->plan(), Not(IsEmpty()));
  }
  EXPECT_GE(count, 1);
}

TEST(SuiteConfigs, HaveAPlaceInTheDocumentation) {
  const std::string docs = read_file(LOCKSTEP_SOURCE_DIR "/docs/config.md").text;
  for (const SuiteKind* kind : suite_kinds())
    EXPECT_THAT(docs, HasSubstr("`suite: " + std::string(kind->name) + "`"));
}

TEST(ConfigSchema, TakesMatricesAndSuites) {
  const nlohmann::json schema = nlohmann::json::parse(every_config_schema());
  const nlohmann::json suite{{"name", "x"}, {"laboratory", "program"}, {"program", {{"save", "s {out}"}, {"points", 4}}}};
  EXPECT_THAT(support::schema_violations(suite, schema), IsEmpty());
  nlohmann::json wrong = suite;
  wrong["program"]["failures"] = {"kil"};
  EXPECT_THAT(support::schema_violations(wrong, schema), Not(IsEmpty()));
  wrong = suite;
  wrong["steps"] = 3;
  EXPECT_THAT(support::schema_violations(wrong, schema), Not(IsEmpty()));
}

TEST(PrepareSuite, RefusesWhatASuiteHasNoUseFor) {
  MatrixSelection selection;
  selection.config = "c.yaml";
  selection.seeds = "0..3";
  EXPECT_THROW(prepare_suite("name: x\nlaboratory: program\n", selection), ConfigError);
}

TEST(TrialsLine, IsOneLineATenthWhereNobodyWatches) {
  std::ostringstream out, err;
  const Console console{out, err};
  TrialsLine line(console);
  for (std::size_t done = 1; done <= 100; ++done) line.on_progress({done, 100, 0, static_cast<double>(done), 100.0 - done});
  EXPECT_THAT(err.str(), HasSubstr("10/100 trials · about 1 min 30 s left\n"));
  EXPECT_THAT(err.str(), HasSubstr("100/100 trials\n"));
  const std::string text = err.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(TrialsLine, NamesATrialThatTakesLong) {
  std::ostringstream out, err;
  const Console console{out, err};
  TrialsLine line(console);
  for (int second = 1; second <= 40; ++second) line.on_progress({0, 3, 0, static_cast<double>(second), 0, "cases:gloo:V64:0", static_cast<double>(second)});
  EXPECT_EQ(err.str(), "0/3 trials · cases:gloo:V64:0 for 15 s\n0/3 trials · cases:gloo:V64:0 for 30 s\n");
}

}  // namespace
}  // namespace lockstep
