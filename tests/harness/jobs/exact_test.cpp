// Exact arithmetic: every layout of one batch trains the same bits, and what is planted is found where it first acts.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/trace/rank_result.h"
#include "scenarios/classify/config.h"
#include "scenarios/energy/config.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

namespace lockstep {
namespace {

/// 24 rows a step, everything on that a layout could change.
RunConfig exact_config() {
  RunConfig config = mini_config();
  config.data.series = 24;
  config.arithmetic = Arithmetic::exact;
  config.layout = {1, 24};
  config.steps = 6;
  config.optimizer = OptimizerKind::adamw;
  config.weight_decay = 0.1;
  config.clip_norm = 0.3;
  energy(config).model.width = 8;
  energy(config).model.hidden = 16;
  energy(config).dropout = 0.2;
  return config;
}

RankResult result_of(const std::string& run, int rank = 0) {
  return read_rank_result(run + "/rank-" + std::to_string(rank) + ".result.json");
}

Mechanism compared(const std::string& reference, const RunConfig& reference_config, const std::string& cell,
                   const RunConfig& cell_config) {
  return compare_runs({reference, cell, {}, {}, &reference_config, &cell_config});
}

struct Division {
  const char* name;
  Layout layout;
  RowPartition rows = RowPartition::equal;
  Backend backend = Backend::emulated;
};

const std::vector<Division>& divisions() {
  static const std::vector<Division> all{
      {"2x12", {2, 12}},
      {"8x3", {8, 3}},
      {"24x1", {24, 1}},
      {"3x8 unequal", {3, 8}, RowPartition::unequal},
      {"3x8 one empty", {3, 8}, RowPartition::one_empty},
      {"4x6 real", {4, 6}, RowPartition::equal, Backend::gloo},
  };
  return all;
}

RunConfig divided(RunConfig config, const Division& division) {
  config.layout = division.layout;
  config.rows = division.rows;
  config.backend = division.backend;
  return config;
}

struct Objective {
  const char* name;
  std::function<void(RunConfig&)> change;
};

RunConfig of_classify(RunConfig config) {
  RunConfig own(*find_trainer_spec("classify"));
  static_cast<CoreConfig&>(own) = static_cast<const CoreConfig&>(config);
  classify(own).model.width = 8;
  classify(own).model.hidden = 16;
  return own;
}

class ExactObjective : public testing::TestWithParam<Objective> {};

TEST_P(ExactObjective, TrainsTheSameBitsUnderEveryLayout) {
  const TempFolder folder;
  RunConfig config = exact_config();
  GetParam().change(config);
  const std::string reference = mini_run(folder.path(), "reference", config);
  const std::string hash = result_of(reference).parameters_hash;
  const std::vector<double> losses = result_of(reference).curves.at("loss").values;
  for (const Division& division : divisions()) {
    const RunConfig cell = divided(config, division);
    const std::string run = mini_run(folder.path(), division.name, cell);
    for (int rank = 0; rank < division.layout.world_size; ++rank) {
      const RankResult own = result_of(run, rank);
      EXPECT_EQ(own.parameters_hash, hash) << division.name << ", rank " << rank;
      EXPECT_EQ(own.curves.at("loss").values, losses) << division.name << ", rank " << rank;
      // Rank 0 has evaluations besides.
      if (rank == 0) continue;
      EXPECT_EQ(own.curves.size(), result_of(run, 1).curves.size()) << division.name << ", rank " << rank;
    }
    const Mechanism mechanism = compared(reference, config, run, cell);
    EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << division.name << ": " << mechanism.sentence;
    EXPECT_EQ(mechanism.compared_steps, config.steps) << division.name;
    EXPECT_EQ(result_of(run).metrics, result_of(reference).metrics) << division.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, ExactObjective,
    testing::Values(
        Objective{"infonce", [](RunConfig&) {}},
        Objective{"symmetric", [](RunConfig& c) { energy(c).loss = "symmetric"; }},
        Objective{"sigmoid", [](RunConfig& c) { energy(c).loss = "sigmoid"; }},
        Objective{"hard", [](RunConfig& c) { energy(c).loss = "hard"; }},
        Objective{"layer", [](RunConfig& c) { energy(c).negatives = Negatives::layer; }},
        Objective{"mixed", [](RunConfig& c) { energy(c).negatives = Negatives::mixed; }},
        Objective{"duplicates",
                  [](RunConfig& c) {
                    energy(c).mask_duplicates = true;
                    energy(c).loss = "symmetric";
                  }},
        Objective{"invalid_rows", [](RunConfig& c) { energy(c).invalid_rows = 0.3; }},
        Objective{"invalid_symmetric",
                  [](RunConfig& c) {
                    energy(c).invalid_rows = 0.3;
                    energy(c).loss = "symmetric";
                  }},
        Objective{"tiles", [](RunConfig& c) { energy(c).tile_columns = 5; }},
        Objective{"checkpointing", [](RunConfig& c) { energy(c).activation_checkpointing = true; }},
        Objective{"running_stats", [](RunConfig& c) { energy(c).running_stats = true; }},
        Objective{"bfloat16", [](RunConfig& c) { c.precision = Precision::bfloat16; }},
        Objective{"float64", [](RunConfig& c) { c.precision = Precision::float64; }},
        Objective{"sgd",
                  [](RunConfig& c) {
                    c.optimizer = OptimizerKind::sgd;
                    c.momentum = 0.9;
                  }},
        Objective{"classify", [](RunConfig& c) { c = of_classify(c); }},
        Objective{"classify_rows",
                  [](RunConfig& c) {
                    c = of_classify(c);
                    classify(c).denominator.over = DenominatorOver::rows;
                    classify(c).label_smoothing = 0.1;
                  }}),
    [](const auto& objective) { return objective.param.name; });

TEST(ExactArithmetic, TrainsHundredsOfStepsWithoutADifferentBit) {
  const TempFolder folder;
  RunConfig config = exact_config();
  config.steps = support::whole_or(60, 200);
  const std::string hash = result_of(mini_run(folder.path(), "reference", config)).parameters_hash;
  for (const Division& division : divisions()) {
    if (division.backend == Backend::gloo) continue;
    RunConfig cell = divided(config, division);
    EXPECT_EQ(result_of(mini_run(folder.path(), division.name, cell)).parameters_hash, hash) << division.name;
  }
}

TEST(ExactArithmetic, TakesMicroStepsAsTheirRowsTurns) {
  const TempFolder folder;
  RunConfig config = exact_config();
  config.accumulation = 3;
  const std::string reference = mini_run(folder.path(), "reference", config);
  for (const Layout& layout : {Layout{2, 12}, Layout{4, 6}, Layout{8, 3}}) {
    RunConfig cell = config;
    cell.layout = layout;
    const std::string run = mini_run(folder.path(), std::to_string(layout.world_size), cell);
    const Mechanism mechanism = compared(reference, config, run, cell);
    EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << mechanism.sentence;
  }
  // Explicit candidates are each row's own: there a micro-step changes nothing at all.
  energy(config).negatives = Negatives::layer;
  RunConfig whole = config;
  whole.accumulation = 1;
  EXPECT_EQ(result_of(mini_run(folder.path(), "parts", config)).parameters_hash,
            result_of(mini_run(folder.path(), "whole", whole)).parameters_hash);
}

TEST(ExactArithmetic, IsTheNativeGradientButForRounding) {
  const TempFolder folder;
  RunConfig config = exact_config();
  config.steps = 1;
  RunConfig native = config;
  native.arithmetic = Arithmetic::native;
  const RankResult exact = result_of(mini_run(folder.path(), "exact", config));
  const RankResult rounded = result_of(mini_run(folder.path(), "native", native));
  for (const char* curve : {"loss", "gradient_norm"}) {
    const double expected = rounded.curves.at(curve).values.front(), found = exact.curves.at(curve).values.front();
    EXPECT_NEAR(found, expected, 1e-5 * std::abs(expected)) << curve;
  }
}

TEST(ExactArithmetic, GoesOnUnderFewerRanksAsIfNothingHadHappened) {
  const TempFolder folder;
  RunConfig config = exact_config();
  config.steps = 300;
  config.schedule = Schedule::cosine;
  const RankResult whole = result_of(mini_run(folder.path(), "whole", config));
  RunConfig eight = config, four = config, one = config;
  eight.layout = {8, 3};
  eight.snapshot_steps = {100};
  eight.stop_after = 101;  // a snapshot is taken before its step
  mini_run(folder.path(), "eight", eight);
  four.layout = {4, 6};
  four.resume_from = "eight";
  four.resume_step = 100;
  four.snapshot_steps = {200};
  four.stop_after = 201;
  mini_run(folder.path(), "four", four);
  one.resume_from = "four";
  one.resume_step = 200;
  const RankResult last = result_of(mini_run(folder.path(), "one", one));
  EXPECT_EQ(last.parameters_hash, whole.parameters_hash);
  EXPECT_EQ(last.metrics, whole.metrics);
}

struct Fault {
  const char* mutant;
  const char* phase;
  bool of_row;
  std::function<void(RunConfig&)> change = [](RunConfig&) {};
};

class ExactFault : public testing::TestWithParam<Fault> {};

TEST_P(ExactFault, IsFoundInAFreeRunAtTheVeryStep) {
  const TempFolder folder;
  RunConfig config = exact_config();
  GetParam().change(config);
  RunConfig cell = config;
  cell.layout = {8, 3};
  cell.mutant.name = GetParam().mutant;
  cell.mutant.step = 3;
  cell.mutant.rank = 5;
  const std::string reference = mini_run(folder.path(), "reference", config);
  const std::string run = mini_run(folder.path(), "cell", cell);
  const Mechanism mechanism = compared(reference, config, run, cell);
  ASSERT_EQ(mechanism.verdict, VerdictKind::divergent) << mechanism.sentence;
  const Divergence& first = *mechanism.first_divergence;
  EXPECT_EQ(first.step, 3) << mechanism.sentence;
  EXPECT_EQ(first.phase, GetParam().phase) << mechanism.sentence;
  if (!GetParam().of_row) return;
  ASSERT_TRUE(first.row && first.sample) << mechanism.sentence;
  EXPECT_EQ(first.rank, 5) << mechanism.sentence;
  EXPECT_EQ(*first.row % 8, 5) << "rows 5, 13 and 21 of the batch are that rank's";
}

INSTANTIATE_TEST_SUITE_P(
    Free, ExactFault,
    testing::Values(Fault{"flip_bit", "local gradients", true}, Fault{"sample_content", "energies", true},
                    Fault{"message_flip", "collective", false}, Fault{"extra_draws", "random", false},
                    Fault{"rank_missing", "reduced gradients", false},
                    Fault{"gradient_message_flip", "reduced gradients", false},
                    Fault{"weight_flip", "parameters", false}, Fault{"rank_behind", "parameters", false},
                    Fault{"sample_replaced", "samples", false}),
    [](const auto& fault) { return fault.param.mutant; });

/// Both runs began the step with the same bits: what they kept whole tells the cause as a forced step does.
TEST(ExactArithmetic, NamesACauseFromTheValuesOfAFreeRun) {
  struct Named {
    const char *mutant, *code;
    std::function<void(RunConfig&)> change = [](RunConfig&) {};
  };
  const auto unequal = [](RunConfig& config) { config.rows = RowPartition::unequal; };
  for (const Named& each : {Named{"local_negatives", "local-negatives"}, Named{"label_offset", "label-offset"},
                            Named{"mean_of_means", "mean-of-means", unequal}, Named{"rows_left_out", "rows-left-out"},
                            Named{"loss_over_world", "loss-over-world"}, Named{"flip_bit", "bit-flip"},
                            Named{"candidates_detached", "candidates-detached"}, Named{"optimizer_state_lost", "optimizer-state-lost"},
                            Named{"clip_missing", "clip-missing"}, Named{"gradient_sum", "gradient-sum-not-mean"}}) {
    const TempFolder folder;
    RunConfig config = exact_config();
    config.trace = TraceLevel::full;
    config.clip_norm = 0.01;
    RunConfig cell = config;
    cell.layout = {8, 3};
    each.change(cell);
    const int rank = std::string(each.mutant) == "flip_bit" ? 5 : -1;
    cell.mutant = {each.mutant, 3, rank, "energy_head.key.weight", 4, 1.0};
    const std::string reference = mini_run(folder.path(), "reference", config);
    const Mechanism mechanism = compared(reference, config, mini_run(folder.path(), "cell", cell), cell);
    ASSERT_TRUE(mechanism.first_divergence && mechanism.cause) << each.mutant << ": " << mechanism.sentence;
    EXPECT_EQ(mechanism.first_divergence->step, 3) << each.mutant << ": " << mechanism.sentence;
    EXPECT_EQ(mechanism.cause->code, each.code) << mechanism.cause->evidence;
  }
}

TEST(ExactArithmetic, FindsOneFlippedBitOfOneRankHundredsOfStepsIn) {
  const TempFolder folder;
  RunConfig config = exact_config();
  config.steps = support::whole_or(120, 320);
  const int64_t planted = config.steps - 3;
  RunConfig cell = config;
  cell.layout = {8, 3};
  cell.mutant = {"flip_bit", planted, 6, "energy_head.key.weight", 0, 1.0};
  const Mechanism mechanism =
      compared(mini_run(folder.path(), "a", config), config, mini_run(folder.path(), "b", cell), cell);
  ASSERT_TRUE(mechanism.first_divergence) << mechanism.sentence;
  EXPECT_EQ(mechanism.first_divergence->step, planted);
  EXPECT_EQ(mechanism.first_divergence->where, "energy_head.key.weight");
  EXPECT_EQ(mechanism.first_divergence->rank, 6);
}

TEST(ExactArithmetic, NamesTheRowThatIsNoNumberBeforeAnythingIsSummed) {
  const TempFolder folder;
  RunConfig cell = exact_config();
  cell.layout = {3, 8};
  cell.mutant.name = "nan_gradient";
  cell.mutant.step = 2;
  cell.mutant.rank = 1;
  for (const int status : mini_run_statuses(folder.path(), "cell", cell)) EXPECT_NE(status, 0);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string error = result_of(folder.path() + "/cell", rank).error;
    EXPECT_NE(error.find("step 2: row 1 of the step's batch (sample "), std::string::npos) << error;
    EXPECT_NE(error.find("rank 1) has NaN or infinity in its gradient of "), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace lockstep
