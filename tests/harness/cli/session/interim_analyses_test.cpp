#include "harness/cli/session/judged.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>
#include <map>

#include "harness/base/errors.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/plan/interim_analyses.h"
#include "harness/verdict/plan/read_matrix.h"
#include "tests/support/fake_files.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kMatrix =
    "name: x\nsteps: 20\nquestion: outcome\nseeds: auto\nseeds_auto: {first: 2, step: 2, most: 8, budget_s: "
    "BUDGET}\n"
    "certify_steps: 0\nforced_steps: []\nreference: {layout: 1x24}\n"
    "axes: {layout: [8x3, 4x6], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

/// Runs that take one second each, and cells that are decided at a number of seeds that the test plants.
class InterimAnalyses : public testing::Test {
 protected:
  Prepared prepare(const std::string& budget = "0") {
    std::string text = kMatrix;
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

  static std::vector<std::size_t> seeds_by_cell(const Prepared& prepared) {
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
  std::vector<std::string> said_;
};

TEST_F(InterimAnalyses, AddSeedsToTheUndecidedAlone) {
  Prepared prepared = prepare();
  const LaunchReport report = launch_interim_analyses(prepared, steps());
  EXPECT_THAT(seeds_by_cell(prepared), ElementsAre(2, 4, 6, 2));
  // Two seeds of four cells and their reference; then two of two cells and the reference; then of one.
  EXPECT_THAT(launched_, ElementsAre(10, 6, 4));
  EXPECT_EQ(report.finished, 20);
  EXPECT_EQ(report.reused, 0) << "what this call ran is not reused";
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_THAT(said_[0], HasSubstr("interim analysis 1 of 4: 2 cells undecided, which now get 4 seeds"));
}

TEST_F(InterimAnalyses, AnotherCallTakesTheSameLooksFromFinishedRuns) {
  Prepared first = prepare();
  launch_interim_analyses(first, steps());
  launched_.clear();
  Prepared again = prepare();
  const LaunchReport report = launch_interim_analyses(again, steps());
  EXPECT_EQ(seeds_by_cell(again), seeds_by_cell(first));
  EXPECT_THAT(launched_, ElementsAre(0));
  EXPECT_EQ(report.reused, 20);
}

TEST_F(InterimAnalyses, StopAtTheMostSeeds) {
  decided_at_.clear();
  Prepared prepared = prepare();
  launch_interim_analyses(prepared, steps());
  EXPECT_THAT(seeds_by_cell(prepared), ElementsAre(8, 8, 8, 8));
  EXPECT_EQ(launched_.size(), 4u);
}

TEST_F(InterimAnalyses, StopAtTheBudgetAndEndThereAgain) {
  Prepared prepared = prepare("12");
  launch_interim_analyses(prepared, steps());
  // The second look begins after 10 s, the third would after 16.
  EXPECT_THAT(seeds_by_cell(prepared), ElementsAre(2, 4, 4, 2));
  EXPECT_THAT(said_.back(), HasSubstr("the budget of 12 s is spent"));
  Prepared again = prepare("12");
  launch_interim_analyses(again, steps());
  EXPECT_THAT(seeds_by_cell(again), ElementsAre(2, 4, 4, 2));
  Prepared more = prepare("60");
  launch_interim_analyses(more, steps());
  EXPECT_THAT(seeds_by_cell(more), ElementsAre(2, 4, 6, 2)) << "a larger budget goes on";
}

TEST_F(InterimAnalyses, GoOnAfterAnInterruptionWithinALook) {
  interrupt_after_ = 13;
  Prepared prepared = prepare("12");
  EXPECT_TRUE(launch_interim_analyses(prepared, steps()).interrupted);
  interrupt_after_ = 1 << 20;
  now_ += 1000;  // what passes between two calls is nobody's
  Prepared again = prepare("12");
  launched_.clear();
  EXPECT_FALSE(launch_interim_analyses(again, steps()).interrupted);
  EXPECT_THAT(seeds_by_cell(again), ElementsAre(2, 4, 4, 2));
  EXPECT_THAT(launched_, ElementsAre(0, 3)) << "the second look had begun and is ended";
}

TEST_F(InterimAnalyses, DoNotTryAFailedRunAgain) {
  fails_ = "8x3";
  Prepared prepared = prepare();
  const LaunchReport report = launch_interim_analyses(prepared, steps());
  EXPECT_EQ(report.failures.size(), 2u);
  EXPECT_THAT(launched_, ElementsAre(10, 6, 4));
  EXPECT_THAT(seeds_by_cell(prepared), ElementsAre(2, 4, 6, 2));
}

TEST_F(InterimAnalyses, StartAnewWhereTheyAreForgotten) {
  Prepared prepared = prepare("12");
  launch_interim_analyses(prepared, steps());
  forget_interim_analyses(prepared.out_dir);
  Prepared again = prepare("12");
  launch_interim_analyses(again, steps());
  EXPECT_THAT(seeds_by_cell(again), ElementsAre(2, 4, 6, 2)) << "nothing is spent on runs that are there";
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
    Prepared prepared = prepare();
    said_.clear();
    EXPECT_NO_THROW(launch_interim_analyses(prepared, steps())) << wrong.substr(0, 60);
    EXPECT_THAT(seeds_by_cell(prepared), ElementsAre(2, 4, 6, 2));
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

}  // namespace
}  // namespace lockstep
