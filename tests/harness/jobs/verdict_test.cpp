// Verdicts on ranks that compute what one process computes, where rounding is coarse or a gradient is nothing
// else; and the same with a fault planted.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <tuple>
#include <utility>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/compare/forced/forced.h"
#include "harness/verdict/compare/forced/values.h"
#include "harness/verdict/compare/step_pairs.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/questions/judge.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/record.h"
#include "scenarios/energy/config.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Runs everything that a forced comparison reads, and judges it.
class Verdicts : public testing::Test {
 protected:
  Mechanism judged(const RunConfig& cell, const std::vector<int64_t>& steps = {0, 2}) {
    RunConfig reference = cell;
    reference.mutant = {};
    reference.layout = {1, cell.layout.global_batch()};
    reference.snapshot_steps = steps;
    ForcedInputs inputs;
    inputs.reference_free = run("free", reference);
    inputs.cell_free = run("free", cell);
    RunConfig forced = reference, forced_cell = cell;
    forced.snapshot_steps = {};
    forced.forced = forced_cell.forced = {id_of("free", reference), steps, 0, {}};
    std::tie(inputs.forced_reference, inputs.reference_twin) = forced_and_twin(forced);
    std::tie(inputs.forced_cell, inputs.cell_twin) = forced_and_twin(forced_cell);
    inputs.reference_config = &reference;
    inputs.cell_config = &cell;
    forced_reference_ = inputs.forced_reference;
    reference_twin_ = inputs.reference_twin;
    return judge_forced(inputs);
  }

  std::string write_series(const std::string& name, int channels) {
    std::string text = "@problemName Constant\n@timeStamps false\n@missing false\n@univariate false\n";
    text += "@dimensions " + std::to_string(channels) + "\n@equalLength true\n@seriesLength 60\n";
    text += "@classLabel true A B\n@data\n";
    for (int series = 0; series < 16; ++series) {
      for (int channel = 0; channel < channels; ++channel) {
        for (int step = 0; step < 60; ++step) text += step == 0 ? "1.0" : ",1.0";
        text += ":";
      }
      text += series % 2 == 0 ? "A\n" : "B\n";
    }
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }

  static RunConfig config_of(Layout layout) {
    RunConfig config = mini_config();
    config.layout = layout;
    config.steps = 3;
    energy(config).model.width = 16;
    energy(config).model.hidden = 32;
    return config;
  }

  /// Of the reference's whole gradient from its twin's, against that one's norm: the largest of all forced steps.
  double distance_of_gradients() const {
    const Trace narrow = read_trace(forced_reference_ + "/rank-0.trace"), wide = read_trace(reference_twin_ + "/rank-0.trace");
    double largest = 0;
    for (std::size_t step = 0; step < wide.steps.size(); ++step) {
      double size = 0, apart = 0;
      for (const Record& record : wide.steps[step].records) {
        const Record* other = find_record(narrow.steps.at(step), Phase::reduced_gradients, record.name);
        if (record.phase != Phase::reduced_gradients || !other) continue;
        const std::vector<double> expected = values_of(record).value();
        size = std::hypot(size, norm(expected));
        apart = std::hypot(apart, distance(expected, values_of(*other).value()));
      }
      largest = std::max(largest, apart / size);
    }
    return largest;
  }

  TempFolder folder_;
  std::string forced_reference_, reference_twin_;
  bool twin_chooses_ = true;

 private:
  /// As they are planned: where a loss takes some of the candidates, those that the twin takes.
  std::pair<std::string, std::string> forced_and_twin(RunConfig config) {
    RunConfig wide = config;
    wide.forced.twin = true;
    const std::string twin = run("twin", wide);
    if (twin_chooses_ && energy(config).loss == "hard") config.forced.chosen_by = id_of("twin", wide);
    return {run("forced", config), twin};
  }

  static std::string id_of(const std::string& role, const RunConfig& config) {
    return role + "-" + config_hash(config);
  }
  std::string run(const std::string& role, const RunConfig& config) {
    const std::string id = id_of(role, config);
    if (const auto known = runs_.find(id); known != runs_.end()) return known->second;
    return runs_[id] = mini_run(folder_.path(), id, config);
  }
  std::map<std::string, std::string> runs_;
};

TEST_F(Verdicts, RowsThatDoNotCountAreCountedOnceAStep) {
  RunConfig config = config_of({3, 4});
  energy(config).invalid_rows = 0.3;
  const Mechanism clean = judged(config);
  EXPECT_EQ(clean.verdict, VerdictKind::within_envelope) << clean.sentence;
  for (const StepRecords& step : read_trace(forced_reference_ + "/rank-0.trace").steps) {
    int calls = 0;
    for (const Record& record : step.records) calls += record.name == "all_reduce loss.rows";
    EXPECT_EQ(calls, 1) << "step " << step.step << ": sums of |terms| are no call of the training step";
  }
}

TEST_F(Verdicts, MicroStepsThatSumTermsStayWithinTheBand) {
  RunConfig config = config_of({3, 4});
  config.accumulation = 2;
  const Mechanism clean = judged(config);
  EXPECT_EQ(clean.verdict, VerdictKind::within_envelope) << clean.sentence;
}

/// In bfloat16 rounding would choose other candidates than float64 at most steps, and another choice has another gradient.
TEST_F(Verdicts, WhatATwinChoosesIsChosenInTheRunToo) {
  RunConfig config = config_of({8, 3});
  config.precision = Precision::bfloat16;
  energy(config).loss = "hard";
  for (const int micro_steps : {1, 3}) {
    config.accumulation = micro_steps;
    const Mechanism clean = judged(config);
    EXPECT_EQ(clean.verdict, VerdictKind::within_envelope) << clean.sentence;
    if (micro_steps == 1) {
      EXPECT_GT(std::ranges::count_if(clean.forced, [](const ForcedStep& step) { return step.chosen_otherwise >= 0; }), 0);
      EXPECT_NE(clean.sentence.find("rounding alone would select other candidates"), std::string::npos) << clean.sentence;
    }
    for (const ForcedStep& step : clean.forced) EXPECT_LT(step.arithmetic_used, 0.5) << "step " << step.step;
  }
  config.accumulation = 1;
  for (const int bit : {26, 30}) {
    config.mutant = {"flip_bit", 2, 2, "context_encoder.in.bias", bit, 1};
    const Mechanism wrong = judged(config);
    EXPECT_EQ(wrong.verdict, VerdictKind::divergent) << bit << ": " << wrong.sentence;
    ASSERT_TRUE(wrong.first_divergence.has_value());
    EXPECT_EQ(wrong.first_divergence->step, 2);
    EXPECT_EQ(wrong.first_divergence->parted, "arithmetic");
    EXPECT_EQ(wrong.first_divergence->where, "context_encoder.in.bias");
  }
  config.mutant = {};
  judged(config);
  const double given = distance_of_gradients();
  twin_chooses_ = false;
  judged(config);
  EXPECT_GT(distance_of_gradients(), 3 * given) << "by itself it takes other candidates";
}

/// Every energy comes to be the same number: what is added up within a row cancels.
TEST_F(Verdicts, ACollapsedModelIsNoAlarm) {
  for (const char* loss : {"infonce", "symmetric", "sigmoid"}) {
    for (const Precision precision : {Precision::bfloat16, Precision::float32}) {
      for (const Layout layout : {Layout{8, 3}, {8, 4}}) {
        RunConfig config = config_of(layout);
        config.precision = precision;
        config.optimizer = OptimizerKind::sgd;
        config.lr = 0.5;
        config.weight_decay = 0.4;
        config.steps = 81;
        energy(config).loss = loss;
        energy(config).dropout = 0;
        const Mechanism clean = judged(config, {0, 20, 40, 50, 60, 70, 80});
        EXPECT_NE(clean.verdict, VerdictKind::divergent) << loss << " " << layout.world_size << "x" << layout.rows_per_rank << ": " << clean.sentence;
        for (const ForcedStep& step : clean.forced) EXPECT_LT(step.meaning_used, 0.5) << loss << ", step " << step.step << ", " << step.worst_tensor;
      }
    }
  }
}

TEST_F(Verdicts, Bfloat16IsJudgedByItsOwnRounding) {
  for (const Layout layout : {Layout{3, 8}, {6, 4}, {12, 2}, {8, 3}, {5, 5}}) {
    for (const int64_t seed : {0, 1}) {
      RunConfig config = config_of(layout);
      config.precision = Precision::bfloat16;
      config.seed = seed;
      const Mechanism clean = judged(config);
      EXPECT_EQ(clean.verdict, VerdictKind::within_envelope)
          << layout.world_size << " ranks, seed " << seed << ": " << clean.sentence;
      EXPECT_LT(clean.band_used, 0.5);
    }
  }
}

TEST_F(Verdicts, GrossFaultsAreFoundAndNamedUnderBfloat16) {
  const std::map<std::string, std::string> causes{{"gradient_times_world", "gradient-times-world"},
                                                  {"sign_flipped", "sign-flipped"},
                                                  {"gradient_sum", "gradient-sum-not-mean"},
                                                  {"loss_times_world", "loss-times-world"},
                                                  {"loss_over_world", "loss-over-world"},
                                                  {"temperature_applied_twice", "temperature-applied-twice"},
                                                  {"label_offset", "label-offset"}};
  for (const auto& [mutant, cause] : causes) {
    RunConfig config = config_of({3, 8});
    config.precision = Precision::bfloat16;
    energy(config).dropout = 0;
    config.mutant.name = mutant;
    const Mechanism planted = judged(config);
    EXPECT_EQ(planted.verdict, VerdictKind::divergent) << mutant << ": " << planted.sentence;
    ASSERT_TRUE(planted.cause) << mutant;
    EXPECT_EQ(planted.cause->code, cause) << mutant << ": " << planted.sentence;
  }
  RunConfig config = config_of({8, 3});
  config.precision = Precision::bfloat16;
  config.mutant.name = "grad_scale";
  config.mutant.factor = 8;
  const Mechanism planted = judged(config);
  EXPECT_EQ(planted.verdict, VerdictKind::divergent) << planted.sentence;
  ASSERT_TRUE(planted.cause);
  EXPECT_EQ(planted.cause->code, "gradient-times-world");
}

TEST_F(Verdicts, AFactorThatNoBitOfFloat32ShowsIsMeaning) {
  for (const Precision precision : {Precision::float32, Precision::bfloat16}) {
    for (const char* group : {"action_encoder", "context_encoder.in.weight", "energy_head.hidden.weight"}) {
      RunConfig config = config_of({3, 8});
      config.precision = precision;
      config.mutant.name = "grad_scale";
      config.mutant.factor = 1.0000000001;
      config.mutant.tensor = group;
      const Mechanism planted = judged(config);
      EXPECT_EQ(planted.verdict, VerdictKind::divergent) << group << ": " << planted.sentence;
      ASSERT_TRUE(planted.first_divergence) << group;
      EXPECT_EQ(planted.first_divergence->step, 0);
      EXPECT_EQ(planted.first_divergence->phase, "local gradients") << planted.sentence;
      EXPECT_TRUE(planted.first_divergence->where.starts_with(group)) << planted.sentence;
      EXPECT_EQ(planted.first_divergence->parted, "meaning");
    }
  }
}

TEST_F(Verdicts, WhatFloat32AloneHasIsArithmeticAndNamed) {
  const std::map<std::string, std::string> causes{{"flip_bit", "bit-flip"},
                                                  {"low_precision_reduction", "reduced-in-low-precision"},
                                                  {"low_precision_candidates", "candidates-in-low-precision"}};
  for (const auto& [mutant, cause] : causes) {
    RunConfig config = config_of({3, 8});
    config.mutant.name = mutant;
    config.mutant.step = 2;
    if (mutant == "flip_bit") {
      config.mutant.rank = 1;
      config.mutant.tensor = "energy_head.hidden.weight";
      config.mutant.bit = 27;
    }
    const Mechanism planted = judged(config);
    ASSERT_TRUE(planted.first_divergence) << mutant << ": " << planted.sentence;
    EXPECT_EQ(planted.first_divergence->step, 2) << planted.sentence;
    EXPECT_EQ(planted.first_divergence->parted, "arithmetic") << planted.sentence;
    ASSERT_TRUE(planted.cause) << mutant;
    EXPECT_EQ(planted.cause->code, cause) << planted.sentence;
    if (mutant == "flip_bit") {
      EXPECT_EQ(planted.first_divergence->rank, 1) << planted.sentence;
    }
  }
}

TEST_F(Verdicts, LayersThatNearlyCancelAreNoDivergence) {
  for (const Layout layout : {Layout{6, 4}, {3, 8}}) {
    RunConfig config = config_of(layout);
    energy(config).negatives = Negatives::layer;
    energy(config).dropout = 0.17;
    config.weight_decay = 0.05;
    config.clip_norm = 0.3;
    const Mechanism clean = judged(config);
    EXPECT_EQ(clean.verdict, VerdictKind::within_envelope) << clean.sentence;
    EXPECT_TRUE(clean.twins);
    for (const ForcedStep& step : clean.forced) EXPECT_LT(step.meaning_used, 0.2) << step.worst_tensor;
  }
}

TEST_F(Verdicts, SeriesThatNeverChangeAreNoDivergence) {
  // Candidates that are all alike cancel in every row, so that gradients are mostly rounding.
  for (const double noise : {0.05, 0.0}) {
    for (const int64_t seed : {3, 4}) {
      RunConfig config = config_of({3, 8});
      config.data.source = DataSource::ts_files;
      config.data.train_file = write_series("train.ts", 3);
      config.data.test_file = write_series("test.ts", 3);
      energy(config).model = {};
      energy(config).context_noise = noise;
      energy(config).dropout = noise > 0 ? energy(config).dropout : 0;
      config.seed = seed;
      const Mechanism clean = judged(config);
      EXPECT_EQ(clean.verdict, VerdictKind::within_envelope) << "seed " << seed << ": " << clean.sentence;
    }
  }
}

TEST_F(Verdicts, FreeRunsOfTwoLayoutsAreNotCalledDivergentForWhatTrainingMakesOfRounding) {
  RunConfig cell = config_of({3, 8});
  cell.steps = 12;
  RunConfig reference = cell;
  reference.layout = {1, 24};
  const auto compare = [&](const RunConfig& config, const std::string& id) {
    const std::string run = mini_run(folder_.path(), id, config);
    return compare_runs({folder_ / "reference", run, {}, {}, &reference, &config});
  };
  mini_run(folder_.path(), "reference", reference);
  const Mechanism clean = compare(cell, "clean");
  EXPECT_EQ(clean.verdict, VerdictKind::inconclusive) << clean.sentence;
  EXPECT_NE(clean.sentence.find("forced_steps"), std::string::npos) << clean.sentence;
  RunConfig planted = cell;
  planted.mutant.name = "sample_replaced";
  planted.mutant.step = 9;
  planted.mutant.rank = 1;
  const Mechanism found = compare(planted, "planted");
  EXPECT_EQ(found.verdict, VerdictKind::divergent) << found.sentence;
  EXPECT_EQ(found.first_divergence->step, 9);
  planted.mutant = {};
  planted.mutant.name = "sign_flipped";
  const Mechanism flipped = compare(planted, "flipped");
  EXPECT_EQ(flipped.verdict, VerdictKind::divergent) << "norms do not tell a sign, but smallest and largest elements do";
  EXPECT_EQ(flipped.first_divergence->step, 0);
  planted.mutant.name = "gradient_times_world";
  const Mechanism first = compare(planted, "scaled");
  EXPECT_EQ(first.verdict, VerdictKind::divergent) << first.sentence;
  EXPECT_EQ(first.first_divergence->step, 0);
}

}  // namespace
}  // namespace lockstep
