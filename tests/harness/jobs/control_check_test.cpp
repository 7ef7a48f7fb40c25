// Real and emulated ranks that compare what steers a step: silent while they agree, and each disagreement is named on every rank
// before a collective hangs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/trace/rank_result.h"
#include "scenarios/energy/config.h"
#include "scenarios/flow_rl/config.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

RankResult result_of(const std::string& run, int rank) {
  return read_rank_result(run + "/rank-" + std::to_string(rank) + ".result.json");
}

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

TEST(ControlGuard, IsSilentAndChangesNoBitWhereRanksAgree) {
  const TempFolder folder;
  for (const bool rl : {false, true}) {
    RunConfig config = rl ? rl_config() : guarded_config();
    const std::string id = rl ? "rl" : "energy";
    const std::string guarded = mini_run(folder.path(), id + "-guarded", config);
    config.control_guard = false;
    const std::string plain = mini_run(folder.path(), id + "-plain", config);
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

class Disagreements : public testing::TestWithParam<Disagreement> {};

TEST_P(Disagreements, AreNamedOnEveryRank) {
  const TempFolder folder;
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
  mini_run_statuses(folder.path(), "run", config);
  for (int rank = 0; rank < 3; ++rank) {
    const RankResult result = result_of(folder.path() + "/run", rank);
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

}  // namespace
}  // namespace lockstep
