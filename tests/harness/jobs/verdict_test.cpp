#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "harness/answer/questions/question_judge.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/canonical.h"
#include "scenarios/classify/spec.h"
#include "scenarios/energy/spec.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

// Verdicts on ranks that compute what one process computes, where rounding is coarse or a gradient is nothing
// else; and the same with a fault planted.

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
    inputs.run_a = run("free", reference);
    inputs.run_b = run("free", cell);
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
  EXPECT_NE(clean.decide.find("forced_steps"), std::string::npos) << clean.decide;
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

// What training's options change and what they must not: activations computed again, bfloat16, A/A pairs.

/// Several buckets, so that the order in which gradients become ready decides bits.
RunConfig several_buckets(Layout layout, Negatives negatives) {
  RunConfig config = mini_config();
  config.layout = layout;
  energy(config).negatives = negatives;
  config.bucket_cap_bytes = 16384;
  config.data.series = 24;
  return config;
}

struct Kept {
  const char* name;
  std::function<void(RunConfig&)> change;
};

using CheckpointingMutants = OfMiniRuns;
using ActivationBytes = OfMiniRuns;
using AdamSqrt = OfMiniRuns;
using ResidentBytes = OfMiniRuns;
using Bfloat16 = OfMiniRuns;
using Perturbations = OfMiniRuns;

class Checkpointing : public MiniRuns, public testing::TestWithParam<Kept> {};

TEST_P(Checkpointing, ComputesTheSameBitsAndKeepsLess) {
  RunConfig config = several_buckets({3, 4}, Negatives::global);
  GetParam().change(config);
  const std::string kept = run("kept", config);
  energy(config).activation_checkpointing = true;
  const std::string again = run("again", config);
  expect_same_bits(kept, again);
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

TEST_F(ActivationBytes, AreExactAndCheckpointingKeepsATenthOrLess) {
  RunConfig config = several_buckets({1, 24}, Negatives::global);
  config.steps = 2;
  const double kept = result_of(run("kept", config)).activation_bytes;
  EXPECT_EQ(result_of(run("twice", config)).activation_bytes, kept);
  energy(config).activation_checkpointing = true;
  const double again = result_of(run("again", config)).activation_bytes;
  EXPECT_LT(10 * again, kept) << again << " of " << kept << " bytes";
}

TEST_F(ResidentBytes, AreSaidAtTheFirstTenthAndAtTheEnd) {
  const std::string dir = run("run", mini_config());
  EXPECT_GT(result_of(dir).resident_first_bytes, 1e7);
  EXPECT_GT(result_of(dir).resident_last_bytes, 1e7);
  EXPECT_EQ(result_of(dir, 1).resident_last_bytes, 0)
      << "emulated ranks share a process";
}

TEST_F(Bfloat16, EmulatedRanksEqualRealOnesAndRepeat) {
  for (const Negatives negatives : {Negatives::global, Negatives::mixed}) {
    RunConfig config = several_buckets({3, 4}, negatives);
    config.precision = Precision::bfloat16;
    const std::string id = negatives == Negatives::global ? "global" : "mixed";
    const std::string real = run_emulated_and_real(id, config);
    expect_same_bits(real, run(id, config));
  }
}

TEST_F(Bfloat16, RoundsMoreThanFloat32AndIsTheSameModel) {
  for (const char* loss : {"infonce", "symmetric", "sigmoid", "hard"}) {
    RunConfig config = several_buckets({3, 4}, Negatives::global);
    energy(config).loss = loss;
    const std::string id(loss);
    const std::string full = run(id, config);
    config.precision = Precision::bfloat16;
    const std::string low = run(id + "-low", config);
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

TEST_F(Perturbations, ChangesWhatItSaysAndNoMore) {
  RunConfig config = several_buckets({3, 4}, Negatives::global);
  const std::string plain = run("plain", config);
  const double loss = result_of(plain).curves.at("loss").values.front();
  const auto perturbed = [&](Perturbation perturb, const std::string& id) {
    config.perturb = perturb;
    const std::string dir = run(id, config);
    expect_same_bits(dir, run(id + "-again", config));
    return dir;
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

TEST_F(AdamSqrt, RealRanksEqualEmulatedOnesAndTheRuleActs) {
  RunConfig config = several_buckets({3, 4}, Negatives::global);
  config.lr_rule = LrRule::sqrt;
  const std::string other = run("sqrt", config);
  config.lr_rule = LrRule::adam_sqrt;
  const std::string real = run_emulated_and_real("run", config);
  EXPECT_TRUE(differing(other, real, 3).contains(Phase::parameters)) << "betas and eps are scaled too";
}

TEST_F(CheckpointingMutants, MutantsOfThePiecesActAndEnd) {
  for (const std::string name :
       {"context_detached", "candidates_detached", "dropout_not_replayed", "dropout_off",
        "head_counted_twice", "gather_without_gradient", "temperature_detached"}) {
    RunConfig config = several_buckets({3, 4}, Negatives::global);
    config.steps = 3;
    energy(config).activation_checkpointing = true;
    if (name == "head_counted_twice" || name == "gather_without_gradient") {
      energy(config).dropout = 0;  // they take energies of all ranks' rows, for which a rank has no streams
    }
    const std::string clean = run(name + "-clean", config);
    config.mutant.name = name;
    config.mutant.step = 1;
    const std::string dir = run(name, config);
    EXPECT_EQ(compare_runs({clean, dir, {}, {}}).verdict, VerdictKind::divergent) << name;
  }
}

// An update that ranks share: the bits of real ranks are those of emulated ones, and those of an update that every rank makes whole.

class ShardedUpdate : public OfMiniRuns {
 protected:
  static RunConfig of_energy(Layout layout, OptimizerKind optimizer) {
    RunConfig config = mini_config();
    config.layout = layout;
    config.data.series = 24;
    config.steps = 6;
    config.bucket_cap_bytes = 16384;  // several buckets
    set_optimizer(config, optimizer);
    return config;
  }
  static RunConfig of_classify(Layout layout, OptimizerKind optimizer) {
    RunConfig config(classify_spec());
    config.data.source = DataSource::synthetic;
    config.data.series = 12;
    config.data.series_steps = 40;
    config.layout = layout;
    config.rows = RowPartition::unequal;
    config.accumulation = 2;
    config.steps = 6;
    config.eval_every = 0;
    classify(config).data = {3, 10, 4, 1};
    classify(config).auxiliary.weight = 0.3;
    set_optimizer(config, optimizer);
    return config;
  }
  static void set_optimizer(RunConfig& config, OptimizerKind optimizer) {
    config.optimizer = optimizer;
    config.lr = optimizer == OptimizerKind::sgd ? 0.05 : 1e-3;
    config.momentum = optimizer == OptimizerKind::sgd ? 0.9 : 0.0;
    config.weight_decay = 0.01;
  }
};

TEST_F(ShardedUpdate, GivesTheParametersOfTheWholeOneBitForBit) {
  int number = 0;
  for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw}) {
    for (const Layout layout : {Layout{2, 4}, Layout{3, 2}, Layout{8, 3}}) {
      for (RunConfig config : {of_energy(layout, optimizer), of_classify(layout, optimizer)}) {
        const std::string name = std::to_string(++number);
        const std::string whole = run("whole" + name, config);
        config.update = UpdatePartition::sharded;
        const std::string sharded = run("sharded" + name, config);
        for (int rank = 0; rank < layout.world_size; ++rank) {
          EXPECT_EQ(result_of(sharded, rank).parameters_hash, result_of(whole).parameters_hash)
              << config.trainer << ", " << layout.world_size << " ranks, optimizer " << static_cast<int>(optimizer);
        }
      }
    }
  }
}

TEST_F(ShardedUpdate, ComesOutOtherwiseWhicheverRanksPartIsCorrupted) {
  RunConfig config = of_energy({3, 2}, OptimizerKind::adam);
  config.update = UpdatePartition::sharded;
  const std::string whole = result_of(run("whole", config)).parameters_hash;
  config.mutant.name = "weight_flip";
  config.mutant.tensor = "energy_head.key.weight";
  config.mutant.bit = 20;
  config.mutant.step = 1;
  for (int rank = 0; rank < 3; ++rank) {
    config.mutant.rank = rank;
    EXPECT_NE(result_of(run("flip" + std::to_string(rank), config), rank).parameters_hash, whole) << rank;
  }
}

TEST_F(ShardedUpdate, OfRealRanksHasTheBitsOfEmulatedOnes) {
  for (RunConfig config : {of_energy({3, 2}, OptimizerKind::adam), of_classify({5, 3}, OptimizerKind::sgd)}) {
    config.update = UpdatePartition::sharded;
    config.clip_norm = 0.05;
    config.average_decay = 0.9;
    config.trace = TraceLevel::stats;
    run_emulated_and_real(config.trainer, config);
  }
}

TEST_F(ShardedUpdate, StandsInTheTraceAsPartsAndCollectives) {
  RunConfig config = of_energy({3, 2}, OptimizerKind::adam);
  config.update = UpdatePartition::sharded;
  config.trace = TraceLevel::full;
  const std::string dir = run("traced", config);
  std::map<std::string, int64_t> rows, wholes;
  for (int rank = 0; rank < 3; ++rank) {
    const Trace trace = read_trace(dir + "/rank-" + std::to_string(rank) + ".trace");
    std::set<std::string> collectives;
    for (const Record& record : trace.steps.back().records) {
      if (record.phase == Phase::collective) collectives.insert(record.collective.op + " " + record.collective.group);
      if (record.phase != Phase::reduced_gradients && record.phase != Phase::optimizer_state) continue;
      if (record.name == "updates") continue;
      ASSERT_NE(record.placement, nullptr) << record.name;
      if (!record.placement->shard) continue;
      rows[record.name] += record.shape.at(0);
      EXPECT_LE(rows.at(record.name), record.placement->whole.at(0)) << record.name;
      wholes[record.name] = record.placement->whole.at(0);
    }
    EXPECT_TRUE(collectives.contains("reduce_scatter gradients"));
    EXPECT_TRUE(collectives.contains("all_gather data"));
    EXPECT_FALSE(collectives.contains("reduce_gradients gradients"));
  }
  EXPECT_EQ(rows, wholes) << "all ranks' parts are the whole";
  EXPECT_TRUE(rows.contains("energy_head.key.weight"));
  EXPECT_TRUE(rows.contains("first_moment/energy_head.key.weight"));
  EXPECT_FALSE(rows.contains("temperature.log_tau")) << "a number has no rows to share";
}

TEST_F(ShardedUpdate, IsClippedByTheNormOfTheWholeGradient) {
  RunConfig config = of_energy({3, 2}, OptimizerKind::sgd);
  config.clip_norm = 0.01;
  const RankResult whole = result_of(run("whole", config));
  config.update = UpdatePartition::sharded;
  const RankResult sharded = result_of(run("sharded", config));
  const std::vector<double>& expected = whole.curves.at("gradient_norm").values;
  const std::vector<double>& found = sharded.curves.at("gradient_norm").values;
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step) {
    EXPECT_GT(expected[step], config.clip_norm) << "else nothing is clipped";
    EXPECT_NEAR(found[step], expected[step], 1e-5 * expected[step]) << "step " << step;
  }
}

TEST_F(ShardedUpdate, ResumesFromASnapshotOfItsOwnAndOfAWholeOne) {
  for (const bool from_sharded : {true, false}) {
    // Of two ranks: a run that begins again has other buckets at its first step, and more ranks would add in another order.
    RunConfig config = of_energy({2, 4}, OptimizerKind::adam);
    config.snapshot_steps = {3};
    config.update = from_sharded ? UpdatePartition::sharded : UpdatePartition::whole;
    const std::string id = from_sharded ? "first_sharded" : "first_whole";
    const std::string first = run(id, config);
    config.snapshot_steps = {};
    config.update = UpdatePartition::sharded;
    config.resume_from = id;
    config.resume_step = 3;
    EXPECT_EQ(result_of(run("resumed_" + id, config)).parameters_hash, result_of(first).parameters_hash);
  }
}

}  // namespace
}  // namespace lockstep
