// Whole runs of the trainer flow_rl: emulated ranks against real ones, exact arithmetic under every layout, and verdicts with
// each planted fault and without.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "harness/judge/causes/acted.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/cells.h"
#include "scenarios/flow_rl/config.h"
#include "tests/support/mini_run.h"

namespace lockstep {
namespace {

RunConfig config_of(Layout layout) {
  RunConfig config(flow_rl_spec());
  FlowRlConfig& own = flow_rl(config);
  own.tasks = "reach press";
  own.policy.hidden = 8;
  own.policy.horizon = 12;
  own.group = 3;
  own.clone.steps = 20;
  own.clone.success = 1;
  own.clone.episodes = 8;
  own.eval_episodes = 4;
  own.episodes = 60;
  config.layout = layout;
  config.steps = 4;
  config.eval_every = 2;
  return config;
}

using FlowRlRuns = OfMiniRuns;

TEST_F(FlowRlRuns, RealRanksGiveTheBitsOfEmulatedOnes) {
  for (const RewardSource source : {RewardSource::root, RewardSource::sharded}) {
    RunConfig config = config_of({3, 4});
    config.rows = RowPartition::unequal;
    config.accumulation = 2;
    flow_rl(config).reward_source = source;
    flow_rl(config).kl = 0.1;
    flow_rl(config).scale_returns = true;
    flow_rl(config).sync_policy_every = source == RewardSource::root ? 1 : 2;
    const std::string real = run_emulated_and_real(std::string(word_of(source)), config);
    for (int rank = 0; rank < 3 && source == RewardSource::root; ++rank) {
      EXPECT_THAT(result_of(real, rank).curves.at("ratio_gap").values, testing::Each(0)) << "rank " << rank;
    }
    EXPECT_TRUE(result_of(real).metrics.contains("success_press"));
  }
}

TEST_F(FlowRlRuns, RolloutsPartitionedByTaskAreThoseOfTheRows) {
  RunConfig config = config_of({3, 4});
  flow_rl(config).sync_policy_every = 2;
  const std::string rows = run("rows", config);
  flow_rl(config).rollouts = RolloutsBy::tasks;
  const std::string emulated = run("tasks", config);
  config.backend = Backend::gloo;
  const std::string real = run("real_tasks", config);
  EXPECT_EQ(result_of(emulated).parameters_hash, result_of(rows).parameters_hash);
  EXPECT_EQ(result_of(real).parameters_hash, result_of(rows).parameters_hash);
  EXPECT_EQ(result_of(real).metrics, result_of(rows).metrics);
  const RankResult partitioned = result_of(emulated);
  for (const double imbalance : partitioned.curves.at("rollout_imbalance").values) {
    EXPECT_GE(imbalance, 1);
    EXPECT_LT(imbalance, 2) << "four groups among three ranks";
  }
}

TEST_F(FlowRlRuns, ExactArithmeticGivesTheSameBitsUnderEveryLayout) {
  for (const AdvantageForm form : {AdvantageForm::rloo, AdvantageForm::normalised}) {
    RunConfig config = config_of({1, 12});
    config.arithmetic = Arithmetic::exact;
    config.steps = 20;  // passes the end of a round
    flow_rl(config).advantages = form;
    flow_rl(config).kl = 0.05;
    flow_rl(config).sync_statistics_every = 3;
    const std::string name(word_of(form)), reference = run("one_" + name, config);
    struct Division {
      Layout layout;
      RowPartition rows;
      Backend backend;
    };
    for (const Division& division : {Division{{4, 3}, RowPartition::equal, Backend::emulated},
                                     Division{{3, 4}, RowPartition::unequal, Backend::emulated},
                                     Division{{3, 4}, RowPartition::one_empty, Backend::gloo}}) {
      RunConfig cell = config;
      cell.layout = division.layout;
      cell.rows = division.rows;
      cell.backend = division.backend;
      const std::string other = run(name + std::to_string(static_cast<int>(division.rows)), cell);
      EXPECT_EQ(result_of(other).parameters_hash, result_of(reference).parameters_hash);
      EXPECT_EQ(result_of(other).metrics, result_of(reference).metrics);
      const Mechanism mechanism = compare_runs({reference, other, {}, {}, &config, &cell});
      EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << mechanism.sentence;
    }
  }
}

TEST_F(FlowRlRuns, GoOnFromACheckpointAsIfTheyHadNeverStopped) {
  RunConfig config = config_of({3, 4});
  config.steps = 8;
  config.checkpoint.every = 3;
  flow_rl(config).kl = 0.1;
  flow_rl(config).scale_returns = true;
  flow_rl(config).sync_policy_every = 2;  // step 3 goes on with the policy of step 2
  flow_rl(config).sync_statistics_every = 2;
  const std::string whole = mini_run(folder_.path(), "whole", config), killed = folder_.path() + "/killed";
  const nlohmann::json at_a_save{{"rank", 0}, {"operation", 60}, {"signal", SIGKILL}};
  ASSERT_EQ(mini_run_statuses(folder_.path(), "killed", config, at_a_save), std::vector{-SIGKILL});
  ASSERT_FALSE(std::filesystem::exists(killed + "/rank-0.result.json"));
  ASSERT_TRUE(std::filesystem::exists(killed + "/checkpoints"));
  mini_run(folder_.path(), "killed", config);
  const RankResult expected = result_of(whole), found = result_of(killed);
  EXPECT_EQ(found.checkpoints.resumed_at, 3);
  EXPECT_EQ(found.parameters_hash, expected.parameters_hash);
  EXPECT_EQ(found.metrics, expected.metrics);
  EXPECT_EQ(found.curves.at("ratio_gap").values, expected.curves.at("ratio_gap").values);
}

TEST_F(FlowRlRuns, GlobalStatisticsAreWithinTheBand) {
  for (const AdvantageForm form : {AdvantageForm::rloo, AdvantageForm::normalised}) {
    RunConfig reference = config_of({1, 12}), cell = config_of({3, 4});
    flow_rl(reference).advantages = flow_rl(cell).advantages = form;
    flow_rl(reference).kl = flow_rl(cell).kl = 0.1;
    cell.rows = RowPartition::one_empty;
    cell.accumulation = 2;
    const Comparison found = forced(reference, cell);
    EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
  }
}

TEST_F(FlowRlRuns, LocalStatisticsAreNamed) {
  for (const AdvantageForm form : {AdvantageForm::rloo, AdvantageForm::normalised}) {
    RunConfig reference = config_of({1, 12}), cell = config_of({3, 4});
    flow_rl(reference).advantages = flow_rl(cell).advantages = form;
    flow_rl(cell).statistics = StatisticsOf::local;
    const Comparison found = forced(reference, cell);
    ASSERT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
    EXPECT_EQ(found.mechanism.first_divergence->phase, "energies");
    const std::optional<Cause> cause = name_cause(*found.around);
    ASSERT_TRUE(cause.has_value());
    EXPECT_EQ(cause->code, "local-advantage-statistics") << cause->evidence;
  }
}

TEST_F(FlowRlRuns, AReferenceOfSeveralRanksHasTheirLocalStatistics) {
  RunConfig cell = config_of({3, 4});
  flow_rl(cell).statistics = StatisticsOf::local;
  cell.rows = RowPartition::unequal;
  RunConfig oracle = cell;
  oracle.layout = {1, 12};
  oracle.oracle_world = 3;
  const Comparison found = forced(oracle, cell);
  EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
}

/// Sets "key=value key=value".
void set_all(RunConfig& config, std::string_view settings) {
  Problems problems("test");
  lockstep::apply(settings_of(settings, flow_rl_spec(), {0, 1, 1}, problems), config);
  ASSERT_TRUE(problems.empty());
}

TEST_F(FlowRlRuns, EachPlantedFaultIsFoundAndNamed) {
  for (const MutantEntry& entry : mutant_entries()) {
    if (entry.trainer != "flow_rl" || entry.phase == "failed") continue;
    SCOPED_TRACE(entry.name);
    RunConfig reference = config_of({1, 12}), cell = config_of({3, 4});
    set_all(reference, entry.settings);
    set_all(cell, entry.settings);
    reference.rows = RowPartition::equal;
    cell.mutant.name = entry.name;
    cell.mutant.step = entry.first_step == 0 ? 0 : 2;
    cell.mutant.rank = entry.draws.rank ? 1 : -1;
    Comparison found = forced(reference, cell);
    EXPECT_EQ(found.mechanism.verdict, VerdictKind::divergent) << found.mechanism.sentence;
    if (!found.around) continue;
    EXPECT_THAT(std::string(entry.phase), testing::HasSubstr(found.mechanism.first_divergence->phase)) << found.mechanism.sentence;
    EXPECT_EQ(found.mechanism.first_divergence->step, entry.first_step == 0 ? 0 : 2);
    const std::optional<Cause> cause = name_cause(*found.around);
    ASSERT_TRUE(cause.has_value());
    EXPECT_THAT(std::string(entry.causes), testing::HasSubstr(cause->code)) << cause->evidence;
    EXPECT_NE(find_cause_page(cause->code), nullptr);
  }
}

TEST_F(FlowRlRuns, RecomputeWhatTheyActedByOrSayWhyNot) {
  struct Case {
    const char *settings, *code;
  };
  for (const auto& [settings, code] : {
           Case{"rows=unequal accumulation=2 sync_statistics_every=2", ""},
           Case{"sync_policy_every=2 rollouts=tasks lr=0.01", ""},
           Case{"precision=float64", ""},
           Case{"precision=bfloat16", "log-pi-in-low-precision"},
           Case{"mutant.name=rollout_policy_stale mutant.rank=1 mutant.step=2 lr=0.01", "stale-rollout-policy"},
           Case{"mutant.name=schedule_of_other_points", "schedules-differ"},
           Case{"mutant.name=sigma_of_next_transition", "sigma-of-another-step"},
           Case{"mutant.name=sigma_terms_missing", "sigma-terms-missing"},
           Case{"mutant.name=rollout_temperature", "rollout-temperature"},
           Case{"mutant.name=old_log_pi_low_precision", "old-log-pi-in-low-precision"},
           Case{"mutant.name=chain_noise_redrawn", "unexplained"},
           Case{"mutant.name=advantages_local", ""},
       }) {
    SCOPED_TRACE(settings);
    RunConfig config = config_of({3, 4});
    set_all(config, settings);
    config.trace = TraceLevel::full;
    flow_rl(config).acted = true;
    const Mechanism found = judge_acted_run(run(hex16(keyed(std::hash<std::string>{}(settings))), config));
    EXPECT_EQ(found.cause ? found.cause->code : "", code)
        << found.sentence << (found.cause ? found.cause->evidence : "");
    EXPECT_EQ(found.verdict == VerdictKind::divergent, *code != '\0');
    if (config.mutant.rank == 1) {
      EXPECT_EQ(found.first_divergence->step, 2);
      EXPECT_EQ(found.first_divergence->rank, 1);
    }
  }
}

TEST_F(FlowRlRuns, EveryWayOfAdvantagesIsSilentInARightRun) {
  for (const char* settings : {"advantages=normalised convention.ddof=1 convention.epsilon=0.0001 convention.floor=0",
                               "advantages=group convention.epsilon=0.01 convention.epsilon_inside=true",
                               "advantages=group_mean convention.floor=0.5 convention.floor_of_variance=true",
                               "advantages=rloo group=5"}) {
    SCOPED_TRACE(settings);
    RunConfig reference = config_of({1, 12}), cell = config_of({3, 4});
    set_all(reference, settings);
    set_all(cell, settings);
    cell.rows = RowPartition::unequal;
    cell.accumulation = 2;
    const Comparison found = forced(reference, cell);
    EXPECT_EQ(found.mechanism.verdict, VerdictKind::within_envelope) << found.mechanism.sentence;
  }
}

}  // namespace
}  // namespace lockstep
