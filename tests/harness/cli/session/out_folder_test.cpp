#include "harness/cli/session/out_folder.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "harness/base/errors.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/trace/writer.h"
#include "reports/format.h"
#include "tests/support/fake_files.h"
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

}  // namespace
}  // namespace lockstep
