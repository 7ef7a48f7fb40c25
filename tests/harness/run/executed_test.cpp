// Ranks that are programs each, started anew, end as forked ones do.

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "harness/run/launch.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/trace/rank_result.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::HasSubstr;

/// `script` says what the ranks do: tests/support/fake_rank.cpp.
PlannedRun a_run(const std::string& id, int ranks, Backend kind, ProcessStart start,
                 const std::string& script = "") {
  PlannedRun run;
  run.id = id;
  run.cell = script;
  run.config.layout = {ranks, 3};
  run.config.backend = kind;
  run.config.process_start = start;
  run.config.steps = 5;
  run.hash = config_hash(run.config);
  return run;
}

class ExecutedRanks : public testing::TestWithParam<ProcessStart> {
 protected:
  LaunchReport launch_one(const PlannedRun& run) {
    Plan plan;
    plan.runs = {run};
    LaunchOptions options;
    options.rank_program = LOCKSTEP_BINARY_DIR "/bin/fake_rank";
    options.out_dir = folder_.path();
    options.jobs = 4;
    options.hang_grace_s = 0.1;
    options.kill_grace_s = 0.3;
    return launch(plan, options, {"b", "t", "i", "d"});
  }
  void expect_no_orphan() const {
    std::istringstream lines(read_text(folder_ / "runs/a/pids"));
    for (pid_t pid; lines >> pid;) EXPECT_TRUE(::kill(pid, 0) != 0 && errno == ESRCH) << pid;
  }
  const TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Starts, ExecutedRanks,
                         testing::Values(ProcessStart::forked, ProcessStart::executed));

TEST_P(ExecutedRanks, Finish) {
  const LaunchReport report = launch_one(a_run("a", 3, Backend::gloo, GetParam()));
  EXPECT_EQ(report.finished, 1);
  for (int rank = 0; rank < 3; ++rank) {
    const RankResult result = read_rank_result(rank_result_path(folder_ / "runs/a", rank));
    EXPECT_EQ(result.status, "finished");
    EXPECT_EQ(result.rank, rank);
    EXPECT_TRUE(std::filesystem::exists(rank_log_path(folder_ / "runs/a", rank)));
  }
  expect_no_orphan();
}

TEST_P(ExecutedRanks, AreOneProcessWhereTheyAreEmulated) {
  EXPECT_EQ(launch_one(a_run("a", 3, Backend::emulated, GetParam())).finished, 1);
  std::istringstream lines(read_text(folder_ / "runs/a/pids"));
  int processes = 0;
  for (pid_t pid; lines >> pid;) ++processes;
  EXPECT_EQ(processes, 1);
}

TEST_P(ExecutedRanks, AreNamedWhenTheyDie) {
  const LaunchReport report = launch_one(a_run("a", 3, Backend::gloo, GetParam(), "1:die all:wait"));
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].kind, FailureKind::died);
  EXPECT_EQ(report.failures[0].rank, 1);
  EXPECT_THAT(report.failures[0].message, HasSubstr("signal 9"));
  EXPECT_THAT(report.failures[0].last_lines, Contains(HasSubstr("about to die")));
  expect_no_orphan();
}

TEST_P(ExecutedRanks, SayWhatEscapesThem) {
  const LaunchReport report = launch_one(a_run("a", 2, Backend::gloo, GetParam(), "1:escape all:wait"));
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].rank, 1);
  EXPECT_THAT(report.failures[0].last_lines, Contains(HasSubstr("thrown past the rank's own net")));
  expect_no_orphan();
}

TEST(ExecutedRanksAlone, AreProgramsOfTheirOwn) {
  // A fork shows its parent's arguments, a program its own.
  const TempFolder folder;
  for (const ProcessStart start : {ProcessStart::forked, ProcessStart::executed}) {
    Plan plan;
    const std::string id = start == ProcessStart::forked ? "forked" : "executed";
    plan.runs = {a_run(id, 2, Backend::gloo, start, "all:arguments")};
    LaunchOptions options;
    options.rank_program = LOCKSTEP_BINARY_DIR "/bin/fake_rank";
    options.out_dir = folder.path();
    options.jobs = 2;
    launch(plan, options, {"b", "t", "i", "d"});
    const std::string log = read_text(rank_log_path(folder / ("runs/" + id), 1));
    EXPECT_THAT(log, start == ProcessStart::forked ? HasSubstr("--socket 3") : HasSubstr("--rank 1"));
  }
}

}  // namespace
}  // namespace lockstep
