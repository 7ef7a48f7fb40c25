#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/run/launch.h"
#include "tests/support/temp_folder.h"

namespace lockstep::support {

/// `script` says what the ranks do: fake_rank.cpp.
inline PlannedRun a_run(const std::string& id, int ranks, Backend kind, const std::string& script = "",
                        double timeout_s = 0, ProcessStart start = ProcessStart::forked) {
  PlannedRun run;
  run.id = id;
  run.cell = script;
  run.config.layout = {ranks, 3};
  run.config.backend = kind;
  run.config.process_start = start;
  run.config.steps = 5;
  if (timeout_s > 0) run.config.timeout_s = timeout_s;
  run.hash = config_hash(run.config);
  run.estimate_s = 1;
  return run;
}

/// "2 finished, 1 requeued", and a line for each failure, with the last lines of its log under it.
inline std::string outcome(const LaunchReport& report) {
  std::ostringstream text;
  text << report.finished << " finished, " << report.requeued << " requeued";
  if (report.interrupted) text << ", interrupted";
  for (const RankFailure& each : report.failures) {
    text << "\n" << each.run << " " << to_word(each.kind) << ", rank " << each.rank << ", step " << each.step << ", "
         << each.operation << ": " << each.message;
    for (const std::string& line : each.last_lines) text << "\n  " << line;
  }
  return text.str();
}

/// The ranks of a run had started, `processes` (-1: any number) of them, and none is there any more, not even as a zombie.
inline void expect_no_orphan(const std::string& dir, int processes = -1) {
  std::istringstream lines(read_text(dir + "/pids"));
  int count = 0;
  for (pid_t pid; lines >> pid; ++count)
    EXPECT_TRUE(::kill(pid, 0) != 0 && errno == ESRCH) << "process " << pid << " of " << dir << " is still there";
  if (processes >= 0) {
    EXPECT_EQ(count, processes) << dir;
  }
}

}  // namespace lockstep::support
