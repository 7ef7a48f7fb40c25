#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/jobs/train_job.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/reader.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/run/watch.h"
#include "harness/trainers/core/task.h"
#include "scenarios/energy/spec.h"
#include "scenarios/flow_rl/config.h"
#include "tests/support/mini_run.h"
#include "tests/support/program.h"
#include "tests/support/ranks.h"
#include "tests/support/whole.h"

// Runs that save, end anywhere, and go on: through the real trainer, on Gloo, in threads, and alone.

namespace lockstep {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

RunConfig saving_config(Backend backend = Backend::gloo) {
  RunConfig config = mini_config();
  config.backend = backend;
  config.steps = 9;
  config.eval_every = 2;
  config.schedule = Schedule::cosine;
  config.checkpoint.every = 3;
  return config;
}

struct Attempt {
  std::string dir;
  std::vector<int> statuses;
};

/// Starts the run in `dir` once more, as the launcher would, and waits for it. `during`: called with the processes.
Attempt attempt(const std::string& dir, const RunConfig& config, const json& planted = json::object(),
                const std::function<void(const std::vector<pid_t>&, const HeartbeatFile&)>& during = nullptr) {
  std::filesystem::create_directories(dir);
  for (const char* stale : {"store", "store-checkpoints"}) std::filesystem::remove(dir + "/" + stale);
  for (int rank = 0; rank < config.layout.world_size; ++rank)
    std::filesystem::remove(dir + "/rank-" + std::to_string(rank) + ".result.json");
  const HeartbeatFile heartbeats = write_run(dir, config, planted.is_null() ? json::object() : planted);
  const std::vector<pid_t> children = start_ranks(dir, config);
  if (during) during(children, heartbeats);
  return {dir, support::codes_of(children)};
}

std::string trace_bytes(const std::string& dir, int rank) {
  return read_file(dir + "/rank-" + std::to_string(rank) + ".trace").text;
}

std::vector<int64_t> steps_kept(const std::string& dir) {
  std::vector<int64_t> steps;
  for (const auto& entry : checkpoint::survey(checkpoint::posix_storage(), dir + "/checkpoints", true).entries) {
    if (entry.standing == checkpoint::Standing::whole) steps.push_back(entry.commit.step);
  }
  return steps;
}

/// Results and traces of all ranks.
void expect_same_end(const std::string& expected, const std::string& found, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const RankResult a = result_of(expected, rank), b = result_of(found, rank);
    EXPECT_EQ(b.status, "finished") << b.error;
    EXPECT_EQ(a.parameters_hash, b.parameters_hash) << "rank " << rank;
    EXPECT_EQ(a.metrics, b.metrics);
    ASSERT_EQ(a.curves.size(), b.curves.size());
    for (const auto& [name, series] : a.curves) {
      EXPECT_EQ(series.steps, b.curves.at(name).steps) << name;
      EXPECT_EQ(series.values, b.curves.at(name).values) << name;
    }
    EXPECT_EQ(trace_bytes(expected, rank), trace_bytes(found, rank)) << "rank " << rank;
  }
}

/// Waits until a rank has finished so many steps, or its process has ended.
void wait_for_step(pid_t process, const HeartbeatFile& heartbeats, int rank, int64_t steps) {
  siginfo_t info{};
  while (heartbeats.step(rank) < steps && info.si_pid == 0) {
    waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT);
    poll(nullptr, 0, 1);
  }
}

/// Kills every process once the slowest rank has finished so many steps.
auto kill_after(int64_t steps) {
  return [steps](const std::vector<pid_t>& processes, const HeartbeatFile& heartbeats) {
    for (int rank = 0; rank < heartbeats.world_size(); ++rank) wait_for_step(processes.front(), heartbeats, rank, steps);
    for (const pid_t process : processes) kill(process, SIGKILL);
  };
}

using CheckpointedRun = OfMiniRuns;
using ControlGuard = OfMiniRuns;
using PreflightCheckOfTrainers = OfMiniRuns;

class GoesOn : public MiniRuns, public testing::TestWithParam<std::pair<const char*, std::function<void(RunConfig&)>>> {};

TEST_P(GoesOn, FromItsNewestCheckpointBitForBit) {
  RunConfig config = saving_config();
  GetParam().second(config);
  const int ranks = config.layout.world_size;
  const Attempt whole = attempt(folder_ / "whole", config);
  ASSERT_EQ(result_of(whole.dir).status, "finished") << result_of(whole.dir).error;
  EXPECT_THAT(result_of(whole.dir).checkpoints.saved, ElementsAre(3, 6, 9));
  const Attempt killed = attempt(folder_ / "run", config, {}, kill_after(7));
  EXPECT_NE(killed.statuses.front(), 0);
  const int64_t newest = steps_kept(killed.dir).at(0);
  EXPECT_GE(newest, config.checkpoint.async ? 3 : 6);
  attempt(killed.dir, config);
  EXPECT_EQ(result_of(killed.dir).checkpoints.resumed_at, newest);
  expect_same_end(whole.dir, killed.dir, ranks);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, GoesOn,
    testing::Values(std::pair{"gloo", +[](RunConfig&) {}},
                    std::pair{"gloo_async_sharded",
                              +[](RunConfig& c) { c.checkpoint.async = c.checkpoint.sharded = true; }},
                    std::pair{"emulated", +[](RunConfig& c) { c.backend = Backend::emulated; }},
                    std::pair{"alone", +[](RunConfig& c) { c.layout = {1, 6}; }},
                    std::pair{"accumulation_sgd", +[](RunConfig& c) {
                                c.accumulation = 2;
                                c.optimizer = OptimizerKind::sgd;
                                c.momentum = 0.9;
                              }},
                    // Buckets that take another shape after the first pass, and three ranks, whose sums depend on it.
                    std::pair{"small_buckets", +[](RunConfig& c) { c.bucket_cap_bytes = 2000; }},
                    std::pair{"prefetch", +[](RunConfig& c) { c.data.prefetch = 2; }}),
    [](const auto& info) { return info.param.first; });

TEST_F(CheckpointedRun, HasTheBitsOfOneThatSavesNothing) {
  RunConfig config = saving_config(), plain = config;
  plain.checkpoint = {};
  const RankResult saved = result_of(attempt(folder_ / "saved", config).dir);
  const RankResult unsaved = result_of(attempt(folder_ / "plain", plain).dir);
  EXPECT_EQ(saved.parameters_hash, unsaved.parameters_hash);
  EXPECT_EQ(saved.curves.at("loss").values, unsaved.curves.at("loss").values);
  EXPECT_FALSE(unsaved.checkpoints.any());
}

TEST_F(CheckpointedRun, KeepsTheNewestAndTheBest) {
  RunConfig config = saving_config();
  config.checkpoint.every = 2;
  config.checkpoint.keep = 2;
  config.steps = 8;
  const std::string dir = attempt(folder_ / "run", config).dir;
  EXPECT_LE(steps_kept(dir).size(), 2u);
  EXPECT_EQ(steps_kept(dir).front(), 8);
  const auto best = checkpoint::read_pointer(checkpoint::posix_storage(), dir + "/checkpoints", checkpoint::kBest);
  EXPECT_TRUE(best.problem.empty()) << best.problem;
  const Series curve = result_of(dir).curves.at("accuracy_24");
  const auto highest = std::max_element(curve.values.begin(), curve.values.end()) - curve.values.begin();
  EXPECT_EQ(best.pointer.step, curve.steps[static_cast<std::size_t>(highest)]);
}

TEST_F(CheckpointedRun, ComparesEvaluationsWithTheBestThatWasSaved) {
  RunConfig config = saving_config();
  config.checkpoint.every = 4;
  config.checkpoint.keep = 2;
  config.eval_every = 1;
  config.steps = 12;
  const std::string dir = attempt(folder_ / "run", config).dir;
  const Series curve = result_of(dir).curves.at("accuracy_24");
  int64_t best = 4;
  for (const int64_t step : {8, 12}) {
    if (curve.values[static_cast<std::size_t>(step - 1)] > curve.values[static_cast<std::size_t>(best - 1)]) best = step;
  }
  EXPECT_EQ(checkpoint::read_pointer(checkpoint::posix_storage(), dir + "/checkpoints", checkpoint::kBest).pointer.step, best);
}

TEST_F(CheckpointedRun, TellsWhichSavesFailedAndFailsWhereTheyAreRequired) {
  for (const bool required : {false, true}) {
    RunConfig config = saving_config();
    config.checkpoint.required = required;
    const std::string dir = folder_.path() + (required ? "/required" : "/run");
    // Whatever epoch step 6 is in: what stands under its name is none of ours to move.
    for (int epoch = 0; epoch < 10; ++epoch) {
      const std::string taken = dir + "/checkpoints/epoch_" + std::to_string(epoch) + "_step_6";
      std::filesystem::create_directories(taken);
      write_file_atomically(taken + "/notes.txt", "mine");
    }
    attempt(dir, config);
    const RankResult result = result_of(dir);
    EXPECT_EQ(result.status, required ? "failed" : "finished") << result.error;
    EXPECT_THAT(result.checkpoints.saved, ElementsAre(3, 9));
    EXPECT_THAT(problem_words(result.checkpoints), testing::AllOf(HasSubstr("1 of 3 saves failed"), HasSubstr("it holds notes.txt"),
                                                                  HasSubstr("the newest checkpoint is of step 9")));
    EXPECT_THAT(result.checkpoints.remarks, testing::Contains(testing::AllOf(HasSubstr("after step 3 was saved"), HasSubstr("notes.txt"))));
    if (required) {
      EXPECT_THAT(result.error, HasSubstr("checkpoint.required: 1 of 3 saves failed"));
    }
  }
}

TEST_F(CheckpointedRun, FinishesTheLastSaveOfARunThatHasNothingLeftToTrain) {
  const RunConfig config = saving_config();
  const std::string dir = attempt(folder_ / "run", config).dir;
  ASSERT_EQ(steps_kept(dir).at(0), 9);
  // As an end between the last commit and the pointers leaves it.
  const std::string root = dir + "/checkpoints";
  std::filesystem::remove(root + "/latest");
  std::filesystem::create_directories(root + "/.saving-epoch_0_step_9-1-0123456789abcdef");
  attempt(dir, config);
  EXPECT_EQ(result_of(dir).checkpoints.resumed_at, 9);
  EXPECT_EQ(checkpoint::read_pointer(checkpoint::posix_storage(), root, checkpoint::kLatest).pointer.step, 9);
  EXPECT_FALSE(std::filesystem::exists(root + "/.saving-epoch_0_step_9-1-0123456789abcdef"));
}

TEST_F(CheckpointedRun, SurvivesTheEndOfARankWithinASave) {
  const RunConfig config = saving_config();
  const std::string whole = attempt(folder_ / "whole", config).dir;
  // Rank 0 does some 40 operations before it commits the first save.
  for (const int64_t operation : {12, 30, 60}) {
    const std::string dir = folder_ / "killed-" + std::to_string(operation);
    const Attempt killed = attempt(dir, config, {{"rank", 0}, {"operation", operation}, {"signal", SIGKILL}});
    EXPECT_EQ(killed.statuses.front(), -SIGKILL);
    attempt(dir, config);
    expect_same_end(whole, dir, 3);
  }
}

TEST_F(CheckpointedRun, NamesAKindThatWasNotSavedOrNotPutBack) {
  const RunConfig config = saving_config();
  const std::string lacking = folder_ / "lacking", kept = folder_ / "kept";
  attempt(lacking, config, {{"not_saved", "moments"}}, kill_after(4));
  attempt(lacking, config);
  EXPECT_THAT(result_of(lacking).error, HasSubstr("moments: the run needs it, the checkpoint has none"));
  attempt(kept, config, {}, kill_after(4));
  for (const auto& [kind, words] : {std::pair{"scheduler", "scheduler: step"},
                                    {"sampler_cursor", "sampler cursor: sample"},
                                    {"stream/draws", "random stream draws: step"},
                                    {"optimizer_step", "optimizer step: updates"},
                                    {"parameters", "parameters: "},
                                    {"curves", "curves: series"}}) {
    attempt(kept, config, {{"not_restored", kind}});
    EXPECT_THAT(result_of(kept).error, HasSubstr(words));
    EXPECT_EQ(result_of(kept).status, "failed");
  }
}

/// What a finished run of one rank has left of step 3, saved once more with another place of the cursor.
void move_cursor(const std::string& from, const std::string& to, const RunConfig& config, int64_t place) {
  std::filesystem::create_directories(to);
  std::filesystem::copy(from + "/checkpoints", to + "/checkpoints", std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(to + "/checkpoints")) {
    if (!entry.path().string().ends_with("step_3")) std::filesystem::remove_all(entry);
  }
  checkpoint::AloneGroup alone;
  checkpoint::LoadOptions load;
  load.root = to + "/checkpoints";
  load.config_hash = training_hash(config);
  checkpoint::LoadOutcome loaded = checkpoint::load(load, checkpoint::posix_storage(), alone);
  ASSERT_EQ(loaded.manifest.step, 3) << loaded.problem;
  json& cursor = loaded.state[checkpoint::kind::sampler_cursor].values["sample"];
  ASSERT_EQ(cursor, 18);
  cursor = place;
  checkpoint::SaveOptions save;
  save.root = load.root;
  save.config_hash = load.config_hash;
  EXPECT_TRUE(checkpoint::Saver(save, checkpoint::posix_storage(), alone).save({0, 3}, loaded.state));
}

TEST_F(CheckpointedRun, NoticesACursorThatDoesNotCountPlaces) {
  RunConfig config = saving_config();
  config.layout = {1, 6};
  const std::string whole = attempt(folder_ / "whole", config).dir, run = folder_ / "run-";
  move_cursor(whole, run + "right", config, 18);
  EXPECT_EQ(result_of(attempt(run + "right", config).dir).parameters_hash, result_of(whole).parameters_hash);
  move_cursor(whole, run + "batches", config, 3);
  EXPECT_THAT(result_of(attempt(run + "batches", config).dir).error,
              HasSubstr("sampler cursor: a multiple of 6 expected, found 3"));
  // What one of three ranks has read itself is the place of step 1.
  move_cursor(whole, run + "own", config, 6);
  const RankResult own = result_of(attempt(run + "own", config).dir);
  EXPECT_EQ(own.status, "finished") << own.error;
  EXPECT_NE(own.parameters_hash, result_of(whole).parameters_hash);
}

TEST_F(CheckpointedRun, RefusesToBeginAnewWhereItsCheckpointsAreDamaged) {
  const RunConfig config = saving_config();
  const std::string dir = attempt(folder_ / "run", config, {}, kill_after(4)).dir;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir + "/checkpoints")) {
    if (entry.path().extension() == ".safetensors") std::filesystem::resize_file(entry.path(), 100);
  }
  attempt(dir, config);
  EXPECT_THAT(result_of(dir).error, HasSubstr("no checkpoint can be gone on from"));
}

TEST_F(CheckpointedRun, GoesOnWithAnotherNumberOfRanksInExactArithmetic) {
  RunConfig config = saving_config();
  config.data.series = 24;
  config.arithmetic = Arithmetic::exact;
  config.layout = {1, 6};
  config.checkpoint.sharded = true;
  const RankResult whole = result_of(attempt(folder_ / "whole", config).dir);
  config.layout = {3, 2};
  const std::string dir = attempt(folder_ / "run", config, {}, kill_after(4)).dir;
  config.layout = {2, 3};
  attempt(dir, config);
  const RankResult end = result_of(dir);
  EXPECT_EQ(end.parameters_hash, whole.parameters_hash) << end.error;
  EXPECT_EQ(end.curves.at("loss").values, whole.curves.at("loss").values);
  EXPECT_THAT(end.checkpoints.remarks, ElementsAre(HasSubstr("the trace lacks steps 0 to 2 of the run")));
}

TEST_F(CheckpointedRun, KeepsTheCurvesOfAllRanksWhereTheirNumberChanges) {
  RunConfig config = saving_config(Backend::emulated);
  config.data.series = 24;
  const auto mean_loss = [](const std::string& dir, int world_size, std::size_t steps) {
    std::vector<double> mean(steps, 0);
    for (int rank = 0; rank < world_size; ++rank) {
      const Series loss = result_of(dir, rank).curves.at("loss");
      for (std::size_t i = 0; i < steps; ++i) {
        EXPECT_EQ(loss.steps.at(i), static_cast<int64_t>(i)) << "rank " << rank;
        mean[i] += loss.values.at(i) / world_size;
      }
    }
    return mean;
  };
  config.layout = {3, 2};
  const std::string whole = attempt(folder_ / "whole", config).dir;
  for (const Layout& layout : {Layout{2, 3}, {6, 1}}) {
    const std::string dir = folder_ / "on_" + std::to_string(layout.world_size);
    std::filesystem::create_directories(dir);
    std::filesystem::copy(whole + "/checkpoints", dir + "/checkpoints", std::filesystem::copy_options::recursive);
    for (const auto& entry : std::filesystem::directory_iterator(dir + "/checkpoints")) {
      if (entry.path().string().ends_with("step_6") || entry.path().string().ends_with("step_9")) std::filesystem::remove_all(entry);
    }
    config.layout = layout;
    attempt(dir, config);
    EXPECT_EQ(result_of(dir).checkpoints.resumed_at, 3) << result_of(dir).error;
    const std::vector<double> before = mean_loss(whole, 3, 3), now = mean_loss(dir, layout.world_size, 9);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(now[i], before[i]);
    // What rank 0 alone has measured stays its own.
    EXPECT_EQ(result_of(dir).curves.at("loss").steps.size(), 9u);
    EXPECT_EQ(result_of(dir).curves.at("accuracy_24").steps, result_of(whole).curves.at("accuracy_24").steps);
  }
}

TEST_F(CheckpointedRun, StopsAfterAnAgreedStepWhenOneRankIsTold) {
  for (const Backend backend : {Backend::gloo, Backend::emulated}) {
    RunConfig config = saving_config(backend);
    config.steps = 14;
    config.checkpoint.every = 7;
    const std::string name = backend == Backend::gloo ? "gloo" : "emulated";
    const std::string whole = attempt(folder_ / "whole-" + name, config).dir;
    for (const int signal : {SIGTERM, SIGUSR1}) {
      const std::string dir = folder_ / name + std::to_string(signal);
      const Attempt told = attempt(dir, config, {}, [signal](const std::vector<pid_t>& processes, const HeartbeatFile& heartbeats) {
        wait_for_step(processes.front(), heartbeats, 0, 4);
        for (int times = 0; times < 3; ++times) kill(processes.back(), signal);
      });
      EXPECT_THAT(told.statuses, testing::Each(128 + signal));
      const RankResult stopped = result_of(dir);
      EXPECT_EQ(stopped.status, "interrupted");
      EXPECT_EQ(stopped.checkpoints.stop_signal, signal);
      EXPECT_EQ(steps_kept(dir).at(0), stopped.steps_done);
      EXPECT_THAT(stopped.error, HasSubstr("saved as step " + std::to_string(stopped.steps_done)));
      attempt(dir, config);
      expect_same_end(whole, dir, 3);
    }
  }
}

// Real and emulated ranks that compare what steers a step: silent while they agree, and each disagreement is named on every rank
// before a collective hangs.

RunConfig guarded_config() {
  RunConfig config = mini_config();
  config.control_guard = true;
  return config;
}

RunConfig rl_config() {
  RunConfig config(*find_trainer_spec("flow_rl"));
  config.layout = {3, 8};
  config.steps = 4;
  config.eval_every = 0;
  config.control_guard = true;
  flow_rl(config).tasks = "reach press";
  flow_rl(config).policy.hidden = 8;
  flow_rl(config).policy.horizon = 12;
  flow_rl(config).clone.episodes = 8;
  flow_rl(config).episodes = 60;
  flow_rl(config).clone.steps = 20;
  flow_rl(config).eval_episodes = 2;
  flow_rl(config).sync_policy_every = 2;
  return config;
}

TEST_F(ControlGuard, IsSilentAndChangesNoBitWhereRanksAgree) {
  for (const bool rl : {false, true}) {
    RunConfig config = rl ? rl_config() : guarded_config();
    const std::string id = rl ? "rl" : "energy";
    const std::string guarded = run(id + "-guarded", config);
    config.control_guard = false;
    const std::string plain = run(id + "-plain", config);
    EXPECT_EQ(result_of(guarded, 0).parameters_hash, result_of(plain, 0).parameters_hash);
    EXPECT_NE(result_of(guarded, 0).parameters_hash, "");
  }
}

struct Disagreement {
  const char* mutant;
  Backend backend;
  int64_t named_at;  ///< it acts at step 2
  const char* words;
};

class Disagreements : public MiniRuns, public testing::TestWithParam<Disagreement> {};

TEST_P(Disagreements, AreNamedOnEveryRank) {
  RunConfig config = guarded_config();
  config.backend = GetParam().backend;
  config.schedule = Schedule::cosine;
  config.mutant.name = GetParam().mutant;
  config.mutant.step = 2;
  config.mutant.rank = 1;
  if (config.mutant.name == "weight_flip") {
    config.mutant.tensor = "energy_head.key.weight";
    config.mutant.bit = 20;
  }
  mini_run_statuses(folder_.path(), "run", config);
  for (int rank = 0; rank < 3; ++rank) {
    const RankResult result = result_of(folder_ / "run", rank);
    EXPECT_THAT(result.error, testing::HasSubstr("step " + std::to_string(GetParam().named_at) + ": " + GetParam().words))
        << "rank " << rank;
    EXPECT_THAT(result.error, testing::HasSubstr("on rank 1")) << "rank " << rank;
    EXPECT_EQ(result.steps_done, GetParam().named_at);
  }
}

INSTANTIATE_TEST_SUITE_P(Planted, Disagreements,
                         testing::Values(Disagreement{"rate_linear", Backend::emulated, 2, "learning_rate is"},
                                         Disagreement{"schedule_shifted", Backend::gloo, 2, "learning_rate is"},
                                         Disagreement{"weight_flip", Backend::gloo, 3, "parameters is"},
                                         Disagreement{"parameter_not_updated", Backend::emulated, 3, "parameters is"}),
                         [](const auto& info) { return std::string(info.param.mutant); });

// Trainers on real ranks that compare themselves before they connect: who differs, comes twice or never comes is named on every
// rank, and nothing is said of those that are alike.

struct Started {
  int rank;
  RunConfig config;
};

/// Each in a process and a folder of its own; they meet in one store. What each says of its end.
std::vector<RankResult> results_of(const std::string& root, const std::vector<Started>& all) {
  std::vector<std::string> folders;
  for (const Started& one : all) {
    folders.push_back(root + "/" + std::to_string(folders.size()));
    write_run(folders.back(), one.config);
  }
  support::codes_of(support::forked(static_cast<int>(all.size()), [&](int which) {
    RankTask task;
    task.run_dir = folders[static_cast<std::size_t>(which)];
    task.rank = all[static_cast<std::size_t>(which)].rank;
    task.store = "../store";
    return run_job(task);
  }));
  std::vector<RankResult> results;
  for (std::size_t i = 0; i < all.size(); ++i) {
    results.push_back(result_of(folders[i], all[i].rank));
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

TEST_F(PreflightCheckOfTrainers, IsSilentWhereRanksAreAlike) {
  const RunConfig config = called();
  for (const RankResult& result : results_of(folder_.path(), {{0, config}, {1, config}, {2, config}})) {
    EXPECT_EQ(result.status, "finished") << result.error;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "store-roll"));
}

TEST_F(PreflightCheckOfTrainers, NamesAnotherConfigAnotherWorldAndARankThatComesTwice) {
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

TEST_F(PreflightCheckOfTrainers, NamesARankThatNeverComes) {
  RunConfig config = called();
  config.timeout_s = 1;
  for (const RankResult& result : results_of(folder_.path(), {{0, config}, {2, config}}))
    EXPECT_THAT(result.error, HasSubstr("preflight check: rank 1 did not join within 1"));
}

// The bridge to what users run: Python's torch.optim and DistributedDataParallel give the bits that lockstep
// gives.

constexpr const char* kPython = LOCKSTEP_PYTHON;

#define NEEDS_PYTHON()  \
  if (*kPython == '\0') \
  GTEST_SKIP() << "no Python that has this LibTorch's torch package: set LOCKSTEP_PYTHON"

/// Output and exit status of a script under tests/bridge.
std::pair<std::string, int> python(const std::string& script, const std::string& argument) {
  return output_of(std::string("OMP_NUM_THREADS=1 ") + kPython + " -W ignore " LOCKSTEP_SOURCE_DIR "/tests/bridge/" + script + " '" +
                   argument + "' 2>&1");
}

RunConfig setting(const std::string& name) {
  RunConfig config;
  const bool sgd = name.starts_with("sgd");
  config.optimizer = sgd ? OptimizerKind::sgd : name == "adamw" ? OptimizerKind::adamw : OptimizerKind::adam;
  config.lr = sgd ? 0.05 : 1e-3;
  config.momentum = name == "sgd_momentum_decay" ? 0.9 : 0.0;
  config.weight_decay = name.find("decay") != std::string::npos || name == "adamw" ? 0.01 : 0.0;
  if (name == "adam_decay") {
    config.beta1 = 0.8;
    config.beta2 = 0.95;
    config.eps = 1e-6;
  }
  config.clip_norm = name == "adam_clip" ? 0.7 : 0.0;
  return config;
}

TEST(Optimizer, EqualsPythonBitForBit) {
  NEEDS_PYTHON();
  const auto [output, status] = python("optimizers.py", "");
  ASSERT_EQ(status, 0) << output;
  std::istringstream lines(output);
  std::string name;
  std::map<std::string, std::pair<ParameterList, std::unique_ptr<Optimizer>>> runs;
  int compared = 0;
  for (int t = 0; lines >> name >> t;) {
    auto& [parameters, optimizer] = runs[name];
    const RunConfig config = setting(name);
    if (!optimizer) {
      parameters.add("p", ((at::arange(67) * 29).remainder(97) - 48).to(at::kFloat) / 32);
      optimizer = std::make_unique<Optimizer>(config, parameters);
    }
    parameters.tensors[0].mutable_grad() =
        ((at::arange(67) * 37 + t * 11).remainder(101) - 50).to(at::kFloat) / 64;
    if (config.clip_norm > 0) {
      clip_gradients(parameters.tensors, total_gradient_norm(parameters.tensors), config.clip_norm);
    }
    optimizer->step(config.lr);
    const at::Tensor now = parameters.tensors[0].detach().contiguous();
    for (int64_t i = 0; i < 67; ++i) {
      std::string bits;
      lines >> bits;
      uint32_t mine = 0;
      std::memcpy(&mine, now.const_data_ptr<float>() + i, 4);
      ASSERT_EQ(mine, std::stoul(bits, nullptr, 16)) << name << ", update " << t << ", element " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6 * 25 * 67);
}

template <typename T>
void write_raw(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

struct Bridge {
  int world_size;
  Negatives negatives;
  OptimizerKind optimizer;
  double clip_norm;
  RankSeed rank_seed;
  int64_t bucket_cap_bytes;
};

class DistributedDataParallel : public MiniRuns, public testing::TestWithParam<Bridge> {};

TEST_P(DistributedDataParallel, GivesTheBitsOfEmulatedRanksOverTwentySteps) {
  NEEDS_PYTHON();
  const Bridge& bridge = GetParam();
  RunConfig config = mini_config();
  config.layout = {bridge.world_size, 2};
  config.steps = 20;
  energy(config).negatives = bridge.negatives;
  config.optimizer = bridge.optimizer;
  config.lr = bridge.optimizer == OptimizerKind::sgd ? 0.05 : 1e-3;
  config.clip_norm = bridge.clip_norm;
  config.rank_seed = bridge.rank_seed;
  config.bucket_cap_bytes = bridge.bucket_cap_bytes;
  config.trace = TraceLevel::full;
  const std::string emulated = run("emulated", config);

  std::ofstream parameters(folder_ / "parameters", std::ios::binary);
  for (const StepRecords& step : read_trace(emulated + "/rank-0.trace").steps) {
    for (const Record& record : step.records) {
      if (step.step >= 0 && record.phase == Phase::parameters) {
        parameters.write(reinterpret_cast<const char*>(record.payload.data()),
                         static_cast<std::streamsize>(record.payload.size()));
      }
    }
  }
  parameters.close();
  const Dataset dataset = load_dataset(pair_config(config));
  write_raw(folder_ / "contexts", dataset.train.contexts);
  write_raw(folder_ / "actions", dataset.train.actions);
  write_raw(folder_ / "masks", dataset.train.context_mask);
  const nlohmann::json settings{{"world_size", bridge.world_size},
                                {"rows_per_rank", 2},
                                {"steps", config.steps},
                                {"seed", config.seed},
                                {"channels", dataset.train.channels},
                                {"context_steps", energy(config).data.context_steps},
                                {"action_steps", energy(config).data.action_steps},
                                {"temperature", energy(config).temperature},
                                {"dropout", energy(config).dropout},
                                {"context_noise", energy(config).context_noise},
                                {"negatives", bridge.negatives == Negatives::global ? "global" : "local"},
                                {"optimizer", bridge.optimizer == OptimizerKind::adam ? "adam" : "sgd"},
                                {"lr", config.lr},
                                {"clip_norm", config.clip_norm},
                                {"bucket_cap_bytes", config.bucket_cap_bytes},
                                {"rank_seed", bridge.rank_seed == RankSeed::keyed ? "keyed" : "plus_rank"},
                                {"contexts", folder_ / "contexts"},
                                {"actions", folder_ / "actions"},
                                {"masks", folder_ / "masks"},
                                {"parameters", folder_ / "parameters"}};
  const auto [output, status] = python("ddp_bridge.py", settings.dump());
  EXPECT_EQ(status, 0) << output;
  EXPECT_NE(output.find("identical over 20 steps"), std::string::npos) << output;
}

std::vector<Bridge> bridges() {
  std::vector<Bridge> all{{3, Negatives::global, OptimizerKind::adam, 0.5, RankSeed::keyed, 0},
                          {3, Negatives::local, OptimizerKind::sgd, 0.0, RankSeed::plus_rank, 32768}};
  if (support::whole()) all.push_back({5, Negatives::global, OptimizerKind::adam, 0.0, RankSeed::keyed, 16384});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Bridge, DistributedDataParallel, testing::ValuesIn(bridges()));

}  // namespace
}  // namespace lockstep
