// A rank program without LibTorch, whose ranks do as the run's cell says: "1:die 2:throw" makes rank 1 die
// and rank 2 throw; ranks that are not named finish. "all:wait" goes for every rank that is not named.
// FAKE_RANKS in the environment stands for the cells of all runs.

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "harness/base/json.h"
#include "harness/jobs/parent.h"
#include "harness/jobs/started.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "harness/run/run_folder.h"
#include "harness/run/watch.h"

namespace {

using namespace lockstep;

struct FakeRun {
  std::string dir, script;
  RunConfig config;
};

FakeRun read_run(const std::string& dir) {
  std::string problem;
  const auto sealed = read_sealed(dir + "/run.json", problem);
  if (!sealed) throw std::runtime_error(dir + "/run.json " + problem);
  const nlohmann::json& json = *sealed;
  const char* script = std::getenv("FAKE_RANKS");
  return {dir, script != nullptr ? script : json.at("cell").get<std::string>(),
          run_config_from_json(json.at("config").dump(), dir + "/run.json")};
}

std::string behaviour_of(const FakeRun& run, int rank) {
  std::istringstream items(run.script);
  std::string others = "finish";
  for (std::string item; items >> item;) {
    const std::size_t colon = item.find(':');
    if (colon == std::string::npos) continue;
    if (item.substr(0, colon) == std::to_string(rank)) return item.substr(colon + 1);
    if (item.substr(0, colon) == "all") others = item.substr(colon + 1);
  }
  return others;
}

void append(const std::string& path, const std::string& line) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0 || ::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(9);
  ::close(file);
}

void leave_result(const FakeRun& run, int rank, const std::string& status, const std::string& error) {
  RankResult result;
  result.rank = rank;
  result.world_size = run.config.layout.world_size;
  result.config_hash = config_hash(run.config);
  result.status = status;
  result.error = error;
  result.phase = "train";
  result.steps_done = run.config.steps;
  write_rank_result(rank_result_path(run.dir, rank), result);
}

/// What a judge needs to find nothing wrong: a step's loss, as the trace of the config's level.
void leave_trace(const FakeRun& run, int rank) {
  TraceWriter trace(run.dir + "/rank-" + std::to_string(rank) + ".trace",
                    {config_hash(run.config), rank, run.config.layout.world_size, run.config.trainer,
                     run.config.trace, "real"});
  for (int64_t step = 0; step < run.config.steps; ++step) {
    trace.begin_step(step);
    trace.scalar(Phase::loss, "loss", 1, Sharing::own);
    trace.end_step();
  }
  trace.finish();
}

/// Rank 0 speaks last, so that a test which has heard of it knows that every rank is there.
void wait_until_all_report(const HeartbeatFile& heartbeat) {
  for (int rank = 1; rank < heartbeat.world_size(); ++rank) {
    while (heartbeat.changes(rank) == 0) ::sched_yield();
  }
}

/// Named in the stacks of a rank that is in a loop.
[[gnu::noinline]] void compute_for_ever() {
  volatile bool goes_on = true;
  while (goes_on) {
  }
}

/// Named in the stacks of a rank that waits.
[[gnu::noinline]] void wait_for_ever() {
  for (;;) ::pause();
}

int behave(const FakeRun& run, int rank, bool has_own_process, HeartbeatFile& heartbeat) {
  const std::string behaviour = behaviour_of(run, rank);
  if (behaviour == "finish") {
    for (int64_t step = 0; step <= run.config.steps; ++step) heartbeat.report(rank, step, "train");
    leave_trace(run, rank);
    leave_result(run, rank, "finished", "");
    return 0;
  }
  if (behaviour == "arguments") {
    std::ifstream arguments("/proc/self/cmdline");
    std::string words((std::istreambuf_iterator<char>(arguments)), {});
    std::replace(words.begin(), words.end(), '\0', ' ');
    std::printf("%s\n", words.c_str());
  }
  if (behaviour == "ignore_term") ::signal(SIGTERM, SIG_IGN);
  if (rank == 0 && has_own_process) wait_until_all_report(heartbeat);
  heartbeat.report(rank, 3, behaviour == "wait" ? "all_reduce bucket 0" : "train");
  std::printf("rank %d is about to %s\n", rank, behaviour.c_str());
  if (behaviour == "die") ::raise(SIGKILL);
  if (behaviour == "throw") throw std::runtime_error("no such tensor: head.weight");
  if (behaviour == "full") throw std::runtime_error(std::string("trace: ") + std::strerror(ENOSPC));
  if (behaviour == "lose") throw std::runtime_error("Connection closed by peer [127.0.0.1]:4711");
  if (behaviour == "escape") throw std::runtime_error("thrown past the rank's own net");
  if (behaviour == "stop") ::raise(SIGSTOP);
  if (behaviour == "compute") compute_for_ever();
  if (behaviour == "labour") {
    timespec used{};
    while (used.tv_sec < 1) ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    leave_trace(run, rank);
    leave_result(run, rank, "finished", "");
    return 0;
  }
  if (behaviour == "wait" || behaviour == "hang" || behaviour == "ignore_term") wait_for_ever();
  return 0;  // "leave": without a result
}

int fake_rank_main(const RankTask& task) {
  release_stop_signals();
  append(task.run_dir + "/pids", std::to_string(::getpid()) + "\n");
  const FakeRun run = read_run(task.run_dir);
  append(task.run_dir + "/../order", task.run_dir.substr(task.run_dir.rfind('/') + 1) + "\n");
  const int world = run.config.layout.world_size;
  HeartbeatFile heartbeat = HeartbeatFile::open(task.run_dir + "/" + task.heartbeats, world);
  // Rank 0 reads the reports of ranks on its own host alone.
  append(task.run_dir + "/addresses", std::to_string(task.rank) + " " + task.address + " " + task.heartbeats + "\n");
  int status = 0;
  const int first = task.rank < 0 ? 0 : task.rank, last = task.rank < 0 ? world - 1 : task.rank;
  for (int rank = first; rank <= last; ++rank) {
    try {
      status = std::max(status, behave(run, rank, task.rank >= 0, heartbeat));
    } catch (const std::exception& error) {
      if (behaviour_of(run, rank) == "escape") throw;
      std::fprintf(stderr, "rank %d failed: %s\n", rank, error.what());
      leave_result(run, rank, "failed", error.what());
      status = 1;
    }
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::rank_program_main(argc, argv, "fake ranks", {fake_rank_main});
}
