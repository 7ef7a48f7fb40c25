#include "tests/support/mini_run.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/jobs/train_job.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/canonical.h"
#include "harness/run/watch.h"
#include "scenarios/energy/spec.h"

namespace lockstep {

RunConfig mini_config() {
  RunConfig config;
  config.data.source = DataSource::synthetic;
  config.data.series = 12;
  config.data.series_steps = 40;
  energy(config).data.min_context = 10;
  energy(config).data.holdout_series = 2;
  config.layout = {3, 2};
  config.steps = 8;
  config.seed = 1;
  config.eval_every = 0;
  return config;
}

std::vector<pid_t> start_ranks(const std::string& dir, const RunConfig& config) {
  const bool real = config.backend == Backend::gloo && config.layout.world_size > 1;
  std::vector<pid_t> children;
  for (int rank = 0; rank < (real ? config.layout.world_size : 1); ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);  // A rank that hangs ends the test, not the session.
      RankTask task;
      task.run_dir = dir;
      if (real) task.rank = rank;
      _exit(run_job(task));
    }
    children.push_back(child);
  }
  return children;
}

std::vector<int> mini_run_statuses(const std::string& root, const std::string& id, const RunConfig& config) {
  const std::string dir = root + "/" + id;
  std::filesystem::create_directories(dir);
  nlohmann::json run{{"config", nlohmann::json::parse(canonical_json(config))}};
  seal(run);
  write_file_atomically(dir + "/run.json", run.dump());
  HeartbeatFile::create(dir + "/heartbeat", config.layout.world_size);
  std::vector<int> statuses;
  for (const pid_t child : start_ranks(dir, config)) {
    int status = 0;
    waitpid(child, &status, 0);
    statuses.push_back(status);
  }
  return statuses;
}

std::string mini_run(const std::string& root, const std::string& id, const RunConfig& config) {
  for (const int status : mini_run_statuses(root, id, config)) {
    EXPECT_EQ(status, 0) << "a rank of " << id << " failed";
  }
  return root + "/" + id;
}

}  // namespace lockstep
