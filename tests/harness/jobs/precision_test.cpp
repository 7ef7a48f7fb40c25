// What training's options change and what they must not: activations computed again, bfloat16, A/A pairs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/questions/judge.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/reader.h"
#include "scenarios/energy/config.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Several buckets, so that the order in which gradients become ready decides bits.
RunConfig several_buckets(Layout layout, Negatives negatives) {
  RunConfig config = mini_config();
  config.layout = layout;
  energy(config).negatives = negatives;
  config.bucket_cap_bytes = 16384;
  config.data.series = 24;
  return config;
}

RankResult result_of(const std::string& run) { return read_rank_result(run + "/rank-0.result.json"); }

struct Kept {
  const char* name;
  std::function<void(RunConfig&)> change;
};

class Checkpointing : public testing::TestWithParam<Kept> {};

TEST_P(Checkpointing, ComputesTheSameBitsAndKeepsLess) {
  const TempFolder folder;
  RunConfig config = several_buckets({3, 4}, Negatives::global);
  GetParam().change(config);
  const std::string kept = mini_run(folder.path(), "kept", config);
  energy(config).activation_checkpointing = true;
  const std::string again = mini_run(folder.path(), "again", config);
  const Mechanism mechanism = compare_runs({kept, again, {}, {}});
  EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << mechanism.sentence;
  EXPECT_EQ(mechanism.compared_steps, config.steps);
  EXPECT_GT(result_of(again).activation_bytes, 0);
  EXPECT_LT(result_of(again).activation_bytes, result_of(kept).activation_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Checkpointing,
    testing::Values(Kept{"fused", [](RunConfig& c) { c.layout = {1, 12}; }},
                    Kept{"emulated", [](RunConfig&) {}},
                    Kept{"real", [](RunConfig& c) { c.backend = Backend::gloo; }},
                    Kept{"eight", [](RunConfig& c) { c.layout = {8, 3}; }},
                    Kept{"local", [](RunConfig& c) { energy(c).negatives = Negatives::local; }},
                    Kept{"layer", [](RunConfig& c) { energy(c).negatives = Negatives::layer; }},
                    Kept{"mixed", [](RunConfig& c) { energy(c).negatives = Negatives::mixed; }},
                    Kept{"as_written",
                         [](RunConfig& c) {
                           energy(c).negatives = Negatives::layer;
                           energy(c).layer.as_written = true;
                         }},
                    Kept{"accumulation", [](RunConfig& c) { c.accumulation = 2; }},
                    Kept{"tiles", [](RunConfig& c) { energy(c).tile_columns = 5; }},
                    Kept{"unused", [](RunConfig& c) { c.find_unused_parameters = true; }},
                    Kept{"views", [](RunConfig& c) { c.gradient_as_bucket_view = true; }},
                    Kept{"symmetric", [](RunConfig& c) { energy(c).loss = "symmetric"; }},
                    Kept{"one_empty", [](RunConfig& c) { c.rows = RowPartition::one_empty; }},
                    Kept{"bfloat16", [](RunConfig& c) { c.precision = Precision::bfloat16; }},
                    Kept{"float64", [](RunConfig& c) { c.precision = Precision::float64; }}),
    [](const testing::TestParamInfo<Kept>& info) { return std::string(info.param.name); });

TEST(ActivationBytes, AreExactAndCheckpointingKeepsATenthOrLess) {
  const TempFolder folder;
  RunConfig config = several_buckets({1, 24}, Negatives::global);
  config.steps = 2;
  const double kept = result_of(mini_run(folder.path(), "kept", config)).activation_bytes;
  EXPECT_EQ(result_of(mini_run(folder.path(), "twice", config)).activation_bytes, kept);
  energy(config).activation_checkpointing = true;
  const double again = result_of(mini_run(folder.path(), "again", config)).activation_bytes;
  EXPECT_LT(10 * again, kept) << again << " of " << kept << " bytes";
}

TEST(ResidentBytes, AreSaidAtTheFirstTenthAndAtTheEnd) {
  const TempFolder folder;
  const std::string run = mini_run(folder.path(), "run", mini_config());
  EXPECT_GT(result_of(run).resident_first_bytes, 1e7);
  EXPECT_GT(result_of(run).resident_last_bytes, 1e7);
  EXPECT_EQ(read_rank_result(run + "/rank-1.result.json").resident_last_bytes, 0)
      << "emulated ranks share a process";
}

TEST(Bfloat16, EmulatedRanksEqualRealOnesAndRepeat) {
  const TempFolder folder;
  for (const Negatives negatives : {Negatives::global, Negatives::mixed}) {
    RunConfig config = several_buckets({3, 4}, negatives);
    config.precision = Precision::bfloat16;
    const std::string id = negatives == Negatives::global ? "global" : "mixed";
    const std::string emulated = mini_run(folder.path(), id, config);
    const std::string again = mini_run(folder.path(), id + "-again", config);
    config.backend = Backend::gloo;
    const std::string real = mini_run(folder.path(), id + "-real", config);
    EXPECT_EQ(compare_runs({emulated, again, {}, {}}).verdict, VerdictKind::identical);
    const Mechanism mechanism = compare_runs({emulated, real, {}, {}});
    EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << mechanism.sentence;
  }
}

TEST(Bfloat16, RoundsMoreThanFloat32AndIsTheSameModel) {
  const TempFolder folder;
  for (const char* loss : {"infonce", "symmetric", "sigmoid", "hard"}) {
    RunConfig config = several_buckets({3, 4}, Negatives::global);
    energy(config).loss = loss;
    const std::string id(loss);
    const std::string full = mini_run(folder.path(), id, config);
    config.precision = Precision::bfloat16;
    const std::string low = mini_run(folder.path(), id + "-low", config);
    const Mechanism mechanism = compare_runs({full, low, {}, {}});
    EXPECT_EQ(mechanism.verdict, VerdictKind::divergent) << mechanism.sentence;
    const double expected = result_of(full).curves.at("loss").values.front();
    const double actual = result_of(low).curves.at("loss").values.front();
    EXPECT_NE(actual, expected);
    EXPECT_NEAR(actual, expected, 0.02 * std::abs(expected)) << loss;
    EXPECT_LT(result_of(low).activation_bytes, 0.8 * result_of(full).activation_bytes);
  }
}

/// Every record of one rank's first steps, by step, phase and name.
std::map<std::string, Record> records_of(const std::string& run, int64_t steps) {
  std::map<std::string, Record> records;
  for (const StepRecords& step : read_trace(run + "/rank-0.trace").steps) {
    for (const Record& record : step.records) {
      if (step.step < steps) {
        records[std::to_string(step.step) + " " + name_of(record.phase) + " " + record.name] = record;
      }
    }
  }
  return records;
}

/// Phases of the records in which two runs differ.
std::set<Phase> differing(const std::string& a, const std::string& b, int64_t steps) {
  const std::map<std::string, Record> of_a = records_of(a, steps), of_b = records_of(b, steps);
  EXPECT_EQ(of_a.size(), of_b.size());
  std::set<Phase> phases;
  for (const auto& [name, record] : of_a) {
    const auto other = of_b.find(name);
    if (other == of_b.end() || other->second.stats.hash != record.stats.hash ||
        other->second.value != record.value || other->second.ids != record.ids) {
      phases.insert(record.phase);
    }
  }
  return phases;
}

std::vector<int64_t> samples_of(const std::string& run, int64_t step) {
  std::vector<int64_t> ids;
  for (const auto& [name, record] : records_of(run, step + 1)) {
    if (record.step == step && record.phase == Phase::samples) {
      ids = record.ids;
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(Perturbation, ChangesWhatItSaysAndNoMore) {
  const TempFolder folder;
  RunConfig config = several_buckets({3, 4}, Negatives::global);
  const std::string plain = mini_run(folder.path(), "plain", config);
  const double loss = result_of(plain).curves.at("loss").values.front();
  const auto perturbed = [&](Perturbation perturb, const std::string& id) {
    config.perturb = perturb;
    const std::string run = mini_run(folder.path(), id, config);
    EXPECT_EQ(compare_runs({run, mini_run(folder.path(), id + "-again", config), {}, {}}).verdict,
              VerdictKind::identical);
    return run;
  };

  const std::string order = perturbed(Perturbation::row_order, "order");
  std::set<Phase> phases = differing(plain, order, 1);
  EXPECT_TRUE(phases.contains(Phase::samples));
  EXPECT_FALSE(phases.contains(Phase::random)) << "draws are keyed by sample";
  EXPECT_NEAR(result_of(order).curves.at("loss").values.front(), loss, 1e-5);
  EXPECT_EQ(samples_of(order, 5), samples_of(plain, 5));
  EXPECT_FALSE(differing(plain, order, 0).contains(Phase::parameters));

  const std::string draws = perturbed(Perturbation::random_draws, "draws");
  phases = differing(plain, draws, 1);
  EXPECT_TRUE(phases.contains(Phase::random));
  EXPECT_FALSE(phases.contains(Phase::samples));
  EXPECT_TRUE(differing(plain, draws, 0).empty()) << "it begins with the same weights";
  EXPECT_NE(result_of(draws).curves.at("loss").values.front(), loss);

  const std::string units = perturbed(Perturbation::epsilon, "units");
  EXPECT_TRUE(differing(plain, units, 0).contains(Phase::parameters));
  phases = differing(plain, units, 1);
  EXPECT_FALSE(phases.contains(Phase::samples));
  EXPECT_FALSE(phases.contains(Phase::random));
  EXPECT_NEAR(result_of(units).curves.at("loss").values.front(), loss, 1e-5);
}

TEST(AdamSqrt, RealRanksEqualEmulatedOnesAndTheRuleActs) {
  const TempFolder folder;
  RunConfig config = several_buckets({3, 4}, Negatives::global);
  config.lr_rule = LrRule::sqrt;
  const std::string other = mini_run(folder.path(), "sqrt", config);
  config.lr_rule = LrRule::adam_sqrt;
  const std::string emulated = mini_run(folder.path(), "emulated", config);
  config.backend = Backend::gloo;
  EXPECT_EQ(compare_runs({emulated, mini_run(folder.path(), "real", config), {}, {}}).verdict,
            VerdictKind::identical);
  EXPECT_TRUE(differing(other, emulated, 3).contains(Phase::parameters)) << "betas and eps are scaled too";
}

TEST(Checkpointing, MutantsOfThePiecesActAndEnd) {
  const TempFolder folder;
  for (const std::string name :
       {"context_detached", "candidates_detached", "dropout_not_replayed", "dropout_off",
        "head_counted_twice", "gather_without_gradient", "temperature_detached"}) {
    RunConfig config = several_buckets({3, 4}, Negatives::global);
    config.steps = 3;
    energy(config).activation_checkpointing = true;
    if (name == "head_counted_twice" || name == "gather_without_gradient") {
      energy(config).dropout = 0;  // they take energies of all ranks' rows, for which a rank has no streams
    }
    const std::string clean = mini_run(folder.path(), name + "-clean", config);
    config.mutant.name = name;
    config.mutant.step = 1;
    const std::string run = mini_run(folder.path(), name, config);
    EXPECT_EQ(compare_runs({clean, run, {}, {}}).verdict, VerdictKind::divergent) << name;
  }
}

}  // namespace
}  // namespace lockstep
