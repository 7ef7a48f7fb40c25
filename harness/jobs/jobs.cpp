#include "harness/jobs/jobs.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "harness/base/errors.h"
#include "harness/base/json.h"
#include "harness/jobs/parent.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep {
namespace {

struct Job {
  std::string_view section;  ///< of run.json
  int (*run)(const RankTask& task, const nlohmann::json& run);
  void (*prepare)(const nlohmann::json& run) = nullptr;  ///< before the ranks are forked; may be null
  bool stops_in_order = false;                           ///< it takes the signals that tell it to end itself
};

constexpr std::array kJobs{
    Job{"all_reduce", &all_reduce_job},             // all-reduces of all processes of a job, checked and timed
    Job{"config", &train_job, &prepare_train_job, true},  // one run of a built-in trainer
    Job{"fault_case", &faults_job},                 // a small program in which a fault acts
};

/// run.json, as lockstep wrote it a moment ago.
nlohmann::json read_run(const std::string& run_dir) {
  const std::string path = run_dir + "/run.json";
  std::string problem;
  std::optional<nlohmann::json> run = read_sealed(path, problem);
  if (!run) throw MachineError(path + " " + problem);
  return *std::move(run);
}

const Job& job_of(const nlohmann::json& run, const std::string& run_dir) {
  for (const Job& job : kJobs) {
    if (run.contains(job.section)) return job;
  }
  throw MachineError(run_dir + "/run.json names no job that this program knows");
}

RankResult result_of(const RankTask& task, int world_size, const char* status) {
  RankResult result;
  result.rank = std::max(task.rank, 0);
  result.world_size = world_size;
  result.status = status;
  return result;
}

}  // namespace

int run_job(const RankTask& task) {
  try {
    const nlohmann::json run = read_run(task.run_dir);
    const Job& job = job_of(run, task.run_dir);
    if (!job.stops_in_order) release_stop_signals();
    return job.run(task, run);
  } catch (const std::exception& error) {
    const int rank = std::max(task.rank, 0);
    RankResult result = result_of(task, 1, "failed");
    result.phase = "launch";
    result.error = message_of(error);
    std::fprintf(stderr, "rank %d failed: %s\n", rank, result.error.c_str());
    write_rank_result(rank_result_path(task.run_dir, rank), result);
    return 1;
  }
}

void prepare_job(const std::string& run_dir) {
  const nlohmann::json run = read_run(run_dir);
  const Job& job = job_of(run, run_dir);
  if (job.prepare != nullptr) job.prepare(run);
}

void end_rank(const RankTask& task, int world_size) {
  write_rank_result(rank_result_path(task.run_dir, std::max(task.rank, 0)), result_of(task, world_size, "finished"));
  std::fflush(nullptr);
  ::_exit(0);
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace lockstep
