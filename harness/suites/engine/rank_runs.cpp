#include "harness/suites/engine/rank_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/base/sealed_json.h"
#include "harness/run/launchers/local/launcher.h"
#include "harness/suites/engine/suite.h"

namespace lockstep {

namespace fs = std::filesystem;

Thresholds RankRun::no_thresholds() {
  constexpr double kLong_s = 1e9;
  return {kLong_s, kLong_s, kLong_s, kLong_s, kLong_s, kLong_s};
}

RankRuns::RankRuns(std::string rank_program, std::string work, const volatile int* stop_requested)
    : rank_program_(std::move(rank_program)), work_(std::move(work)), stop_requested_(stop_requested) {
  fs::remove_all(work_);
  fs::create_directories(work_);
}

std::string RankRuns::folder(const std::string& name) const {
  std::string dir = work_ + "/" + name;
  fs::remove_all(dir);
  fs::create_directories(dir);
  return dir;
}

EndedRun RankRuns::run(const std::string& dir, nlohmann::json run_json, const RankRun& asked, RunHooks hooks) {
  constexpr double kLookEvery_s = 0.002;  // a fault strikes within a step
  seal(run_json);
  write_file_atomically(dir + "/run.json", run_json.dump(2) + "\n");
  if (supervisor_ == nullptr) supervisor_ = std::make_unique<Supervisor>(std::make_unique<LocalLauncher>(rank_program_), rank_program_);
  going_ = fmt::format("run-{}", ++runs_);
  RunSpec spec;
  spec.start.run = going_;
  spec.start.dir = dir;
  spec.start.world_size = asked.world_size;
  spec.start.processes = asked.processes > 0 ? asked.processes : asked.world_size;
  spec.thresholds = asked.thresholds;
  spec.failure_grace_s = asked.failure_grace_s;
  spec.stop_grace_s = asked.stop_grace_s;
  spec.deadline_s = asked.deadline_s;
  spec.look_every_s = kLookEvery_s;
  EndedRun ended = supervise(*supervisor_, std::move(spec), std::move(hooks), stop_requested_);
  for (const RankEnd& end : ended.ends) {
    const bool by_others = end.signal == SIGKILL && !end.killed_by_us && !(asked.kills && asked.kills(std::max(end.rank, 0)));
    if (by_others && *stop_requested_ == 0) throw TrialDisturbed(fmt::format("rank {}", std::max(end.rank, 0)));
  }
  return ended;
}

void RankRuns::signal(int number) {
  if (supervisor_ != nullptr) supervisor_->stop(going_, number);
}

std::string in_words(const std::vector<RankEnd>& ends) {
  std::string text;
  for (const RankEnd& end : ends) {
    const std::string how = end.signal != 0 ? fmt::format("killed by signal {}", end.signal) : fmt::format("status {}", end.code);
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", std::max(end.rank, 0), how);
  }
  return text;
}

}  // namespace lockstep
