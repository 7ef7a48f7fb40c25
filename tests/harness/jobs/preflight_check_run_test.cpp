// Trainers on real ranks that compare themselves before they connect: who differs, comes twice or never comes is named on every
// rank, and nothing is said of those that are alike.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/jobs/jobs.h"
#include "harness/run/watch.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/trace/rank_result.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

struct Started {
  int rank;
  RunConfig config;
};

/// Each in a process and a folder of its own; they meet in one store. What each says of its end.
std::vector<RankResult> results_of(const std::string& root, const std::vector<Started>& all) {
  std::vector<pid_t> children;
  std::vector<std::string> folders;
  for (const Started& one : all) {
    folders.push_back(root + "/" + std::to_string(folders.size()));
    std::filesystem::create_directories(folders.back());
    nlohmann::json run{{"config", nlohmann::json::parse(canonical_json(one.config))}};
    seal(run);
    write_file_atomically(folders.back() + "/run.json", run.dump());
    HeartbeatFile::create(folders.back() + "/heartbeat", one.config.layout.world_size);
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::alarm(60);
    RankTask task;
    task.run_dir = folders.back();
    task.rank = one.rank;
    task.store = "../store";
    ::_exit(run_job(task));
  }
  std::vector<RankResult> results;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ::waitpid(children[i], nullptr, 0);
    results.push_back(read_rank_result(folders[i] + "/rank-" + std::to_string(all[i].rank) + ".result.json"));
  }
  return results;
}

RunConfig called() {
  RunConfig config = mini_config();
  config.backend = Backend::gloo;
  config.watch.comm_check = true;
  config.timeout_s = 20;
  return config;
}

TEST(PreflightCheckOfTrainers, IsSilentWhereRanksAreAlike) {
  const TempFolder folder;
  const RunConfig config = called();
  for (const RankResult& result : results_of(folder.path(), {{0, config}, {1, config}, {2, config}})) {
    EXPECT_EQ(result.status, "finished") << result.error;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/store-roll"));
}

TEST(PreflightCheckOfTrainers, NamesAnotherConfigAnotherWorldAndARankThatComesTwice) {
  const RunConfig config = called();
  RunConfig rate = config, world = config;
  rate.seed = 2;
  world.layout = {4, 2};
  struct Case {
    std::vector<Started> all;
    const char* words;
  };
  for (const Case& each : {Case{{{0, config}, {1, rate}, {2, config}}, "preflight check: rank 1 has config"},
                           Case{{{0, config}, {1, config}, {2, world}}, "preflight check: rank 2 has world size 4 where most have 3"},
                           Case{{{0, config}, {1, config}, {1, config}}, "preflight check: rank 1 joined twice"}}) {
    const TempFolder folder;
    for (const RankResult& result : results_of(folder.path(), each.all)) {
      EXPECT_EQ(result.status, "failed");
      EXPECT_THAT(result.error, HasSubstr(each.words));
    }
  }
}

TEST(PreflightCheckOfTrainers, NamesARankThatNeverComes) {
  const TempFolder folder;
  RunConfig config = called();
  config.timeout_s = 1;
  for (const RankResult& result : results_of(folder.path(), {{0, config}, {2, config}}))
    EXPECT_THAT(result.error, HasSubstr("preflight check: rank 1 did not join within 1"));
}

}  // namespace
}  // namespace lockstep
