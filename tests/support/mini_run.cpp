#include "tests/support/mini_run.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/jobs/train_job.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/canonical.h"
#include "scenarios/energy/spec.h"
#include "tests/support/ranks.h"

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
  return support::forked(real ? config.layout.world_size : 1, [&](int rank) {
    RankTask task;
    task.run_dir = dir;
    if (real) task.rank = rank;
    return run_job(task);
  });
}

HeartbeatFile write_run(const std::string& dir, const RunConfig& config, const nlohmann::json& planted) {
  std::filesystem::create_directories(dir);
  nlohmann::json run{{"config", nlohmann::json::parse(canonical_json(config))}, {"planted", planted}};
  seal(run);
  write_file_atomically(dir + "/run.json", run.dump());
  return HeartbeatFile::create(dir + "/heartbeat", config.layout.world_size);
}

std::vector<int> mini_run_statuses(const std::string& root, const std::string& id, const RunConfig& config,
                                   const nlohmann::json& planted) {
  write_run(root + "/" + id, config, planted);
  return support::codes_of(start_ranks(root + "/" + id, config));
}

std::string mini_run(const std::string& root, const std::string& id, const RunConfig& config) {
  for (const int status : mini_run_statuses(root, id, config)) {
    EXPECT_EQ(status, 0) << "a rank of " << id << " failed";
  }
  return root + "/" + id;
}

}  // namespace lockstep
