#include "harness/cli/out_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <optional>

#include "harness/plan/errors.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

Matrix named(const std::string& name) {
  Matrix matrix;
  matrix.name = name;
  matrix.file = name + ".yaml";
  return matrix;
}

TEST(OutFolder, IsOneProcesssAtATime) {
  const TemporaryFolder folder;
  std::optional<OutFolder> first(std::in_place, folder / "o", named("a"));
  EXPECT_THROW(OutFolder(folder / "o", named("a")), ConfigError);
  first.reset();
  EXPECT_NO_THROW(OutFolder(folder / "o", named("a")));
}

TEST(OutFolder, SaysWhoseItIs) {
  const TemporaryFolder folder;
  { const OutFolder out(folder / "o", named("a")); }
  EXPECT_NO_THROW(check_out_dir(named("a"), folder / "o"));
  EXPECT_THROW(check_out_dir(named("b"), folder / "o"), ConfigError);
}

TEST(OutFolder, RemovesThePlansRunsAndNoOthers) {
  const TemporaryFolder folder;
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
  const TemporaryFolder folder;
  const OutFolder out(folder / "o", named("a"));
  Results results;
  results.name = "a";
  out.write_reports(results);
  EXPECT_THAT(read_text(folder / "o/report.html"), HasSubstr("<html"));
  EXPECT_EQ(results_from_json(read_text(folder / "o/results.json"), "r").name, "a");
  EXPECT_THAT(read_text(folder / "o/junit.xml"), HasSubstr("<testsuite"));
  EXPECT_FALSE(read_text(folder / "o/summary.md").empty());
}

TEST(OutFolder, SaysWhereItCannotBeMade) {
  const TemporaryFolder folder;
  write_text(folder / "file", "");
  EXPECT_THROW(OutFolder(folder / "file/o", named("a")), MachineError);
}

TEST(StepSummary, IsAppended) {
  const TemporaryFolder folder;
  write_text(folder / "summary", "before\n");
  EXPECT_EQ(append_step_summary(folder / "summary", "# mine"), "");
  EXPECT_EQ(read_text(folder / "summary"), "before\n# mine\n");
  EXPECT_THAT(append_step_summary(folder / "no/summary", "# mine"), HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace lockstep
