#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "harness/answer/questions/question_judge.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/band.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/reader.h"
#include "harness/plan/config/trainer_spec.h"
#include "scenarios/classify/spec.h"
#include "scenarios/energy/spec.h"
#include "tests/support/mini_run.h"
#include "tests/support/whole.h"

// R1 = R2: emulated ranks give the bits of real ones, at every step, record by record.

namespace lockstep {
namespace {

struct Rung {
  int world_size;
  Negatives negatives;
  OptimizerKind optimizer;
  double clip_norm;
  RankSeed rank_seed;
  bool bucket_view;
};

using Oracle = OfMiniRuns;
using Forced = OfMiniRuns;
using LadderOfRuns = OfMiniRuns;
using Measurements = OfMiniRuns;
using ExactArithmetic = OfMiniRuns;

class Ladder : public MiniRuns, public testing::TestWithParam<Rung> {};

RunConfig config_of(const Rung& rung) {
  RunConfig config = mini_config();
  config.layout = {rung.world_size, rung.world_size == 8 ? 3 : 2};
  energy(config).negatives = rung.negatives;
  config.optimizer = rung.optimizer;
  config.lr = rung.optimizer == OptimizerKind::sgd ? 0.05 : 1e-3;
  config.momentum = rung.optimizer == OptimizerKind::sgd ? 0.9 : 0.0;
  config.clip_norm = rung.clip_norm;
  config.rank_seed = rung.rank_seed;
  config.gradient_as_bucket_view = rung.bucket_view;
  config.bucket_cap_bytes = 16384;  // Several buckets for a model of 90 kB.
  config.data.series = 24;
  return config;
}

TEST_P(Ladder, EmulatedRanksEqualRealOnes) {
  RunConfig config = config_of(GetParam());
  const std::string real = run_emulated_and_real("run", config);
  std::size_t buckets = 0;
  const Trace trace = read_trace(real + "/rank-0.trace");
  for (const Record& record : trace.steps.back().records) {
    buckets += record.phase == Phase::collective && record.collective.op == "reduce_gradients" ? 1 : 0;
  }
  EXPECT_GE(buckets, 3U) << "one bucket cannot show that the order of buckets is right";
}

INSTANTIATE_TEST_SUITE_P(
    Rungs, Ladder,
    testing::Values(Rung{2, Negatives::local, OptimizerKind::adam, 0.5, RankSeed::keyed, false},
                    Rung{2, Negatives::global, OptimizerKind::sgd, 0.0, RankSeed::plus_rank, true},
                    Rung{3, Negatives::global, OptimizerKind::adam, 0.0, RankSeed::keyed, false},
                    Rung{3, Negatives::global, OptimizerKind::sgd, 0.5, RankSeed::plus_rank, false},
                    Rung{3, Negatives::local, OptimizerKind::adamw, 0.5, RankSeed::same, true},
                    Rung{4, Negatives::global, OptimizerKind::adam, 0.5, RankSeed::same, false},
                    Rung{4, Negatives::local, OptimizerKind::sgd, 0.0, RankSeed::keyed, false},
                    Rung{5, Negatives::global, OptimizerKind::adam, 0.5, RankSeed::keyed, true},
                    Rung{5, Negatives::local, OptimizerKind::sgd, 0.5, RankSeed::plus_rank, false},
                    Rung{8, Negatives::global, OptimizerKind::adam, 0.5, RankSeed::keyed, false},
                    Rung{8, Negatives::local, OptimizerKind::sgd, 0.0, RankSeed::plus_rank, false}));

/// A rank's record of a forced step: reduced gradients are whole on rank 0, local ones on every rank.
std::map<std::string, std::vector<double>> forced_gradients(const std::string& run, Phase phase, int rank) {
  std::map<std::string, std::vector<double>> gradients;
  TraceReader reader(run + "/rank-" + std::to_string(rank) + ".trace");
  const std::optional<StepRecords> step = reader.next();
  for (const Record& record : step->records) {
    if (record.phase == phase && !record.payload.empty()) gradients[record.name] = values_of(record).value();
  }
  return gradients;
}

/// The largest difference of two runs' reduced gradients, and where it is.
struct Furthest {
  double difference = 0;
  std::string tensor;
  std::size_t element = 0;
};

Furthest furthest(const std::string& run, const std::string& expected) {
  const auto a = forced_gradients(run, Phase::reduced_gradients, 0);
  const auto b = forced_gradients(expected, Phase::reduced_gradients, 0);
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(a.size(), b.size());
  Furthest result;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) {
      ADD_FAILURE() << run << ": " << name << " is not in " << expected << " in this shape";
      continue;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(values[i] - other->second[i]);
      if (difference > result.difference || std::isnan(difference)) {
        result = {difference, name, i};
      }
    }
  }
  return result;
}

std::string told(const Furthest& of) { return of.tensor + "[" + std::to_string(of.element) + "]"; }

/// The first rank and tensor whose local gradient differs in bits between two runs of one config, or nothing.
std::string first_other_gradient(const std::string& run, const std::string& like, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    const auto others = forced_gradients(like, Phase::local_gradients, rank);
    for (const auto& [name, values] : forced_gradients(run, Phase::local_gradients, rank)) {
      const auto other = others.find(name);
      if (other == others.end() || other->second != values) {
        return "rank " + std::to_string(rank) + ", " + name;
      }
    }
  }
  return {};
}

TEST_F(Oracle, OneProcessComputesWhatRanksOfAnyPartitioningMean) {
  for (const char* loss : {"infonce", "symmetric"}) {
    RunConfig config = mini_config();
    config.layout = {3, 8};
    config.precision = Precision::float64;
    config.data.series = 24;
    config.steps = 3;
    config.snapshot_steps = {2};
    energy(config).loss = loss;
    energy(config).negatives = Negatives::local;
    config.rows = RowPartition::unequal;
    energy(config).invalid_rows = 0.2;
    config.accumulation = 2;
    RunConfig reference = config;
    reference.layout = {1, 24};
    reference.oracle_world = 3;
    const std::string id(loss);
    run(id + "-reference", reference);
    reference.snapshot_steps = config.snapshot_steps = {};
    reference.forced = {id + "-reference", {2}, 0, {}};
    config.forced = reference.forced;
    const std::string expected = run(id + "-reference-forced", reference);
    const std::string emulated = run(id + "-ranks", config);
    config.backend = Backend::gloo;
    const std::string real = run(id + "-real", config);
    const Furthest of_emulated = furthest(emulated, expected), of_real = furthest(real, expected);
    EXPECT_LT(of_emulated.difference, 1e-13) << loss << ", emulated: " << told(of_emulated);
    EXPECT_LT(of_real.difference, 1e-13) << loss << ", real: " << told(of_real);
    EXPECT_EQ(first_other_gradient(emulated, real, 3), "") << loss << ", emulated against real";
    config.backend = Backend::emulated;
    config.rows = RowPartition::equal;
    EXPECT_GT(furthest(run(id + "-equal", config), expected).difference, 1e-6);
  }
}

TEST_F(Oracle, BlocksGoToRanksWhole) {
  RunConfig config = mini_config();
  config.layout = {4, 6};
  config.precision = Precision::float64;
  config.data.series = 24;
  config.data.block = 3;
  config.data.correlation = 0.9;
  energy(config).negatives = Negatives::local;
  config.steps = 2;
  RunConfig reference = config;
  reference.layout = {1, 24};
  reference.oracle_world = 4;
  reference.snapshot_steps = {1};
  run("reference", reference);
  reference.snapshot_steps = {};
  reference.forced = {"reference", {1}, 0, {}};
  config.forced = reference.forced;
  const std::string expected = run("reference-forced", reference);
  const Furthest of_ranks = furthest(run("ranks", config), expected);
  EXPECT_LT(of_ranks.difference, 1e-13) << told(of_ranks);
}

TEST_F(Forced, AKeptStepStandsForTheRunThatItCameFrom) {
  RunConfig config = mini_config();
  config.snapshot_steps = {2};
  const std::string free = run("free", config);
  const std::string kept = folder_.path() + "/kept.trace";
  ASSERT_TRUE(keep_step(free + "/rank-0.trace", 2, kept));
  config.snapshot_steps = {};
  config.forced = {"free", {2}, 0, {}};
  const Trace of_run = read_trace(run("of_run", config) + "/rank-0.trace");
  config.forced = {"", {2}, 0, kept};
  const Trace of_step = read_trace(run("of_step", config) + "/rank-0.trace");
  ASSERT_EQ(of_run.steps.size(), of_step.steps.size());
  EXPECT_NE(of_run.header.config_hash, of_step.header.config_hash) << "another run, by its key";
  for (std::size_t s = 0; s < of_run.steps.size(); ++s) {
    const std::vector<Record>& expected = of_run.steps[s].records;
    const std::vector<Record>& records = of_step.steps[s].records;
    ASSERT_EQ(records.size(), expected.size());
    ASSERT_GT(records.size(), 20U);
    for (std::size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i].name, expected[i].name);
      EXPECT_EQ(records[i].stats, expected[i].stats) << records[i].name;
      EXPECT_EQ(records[i].payload, expected[i].payload) << records[i].name;
    }
  }
}

TEST_F(LadderOfRuns, TraceLevelsDoNotChangeTheRun) {
  RunConfig config = mini_config();
  std::map<std::string, Series> expected;
  std::map<std::string, double> metrics;
  for (const TraceLevel level : {TraceLevel::off, TraceLevel::hash, TraceLevel::stats, TraceLevel::full}) {
    config.trace = level;
    const std::string dir =
        run("level-" + std::to_string(static_cast<int>(level)), config);
    const RankResult result = result_of(dir);
    ASSERT_EQ(result.curves.at("gradient_norm").values.size(), static_cast<std::size_t>(config.steps));
    if (level == TraceLevel::off) {
      expected = result.curves;
      metrics = result.metrics;
      continue;
    }
    for (const auto& [name, series] : expected) {
      EXPECT_EQ(result.curves.at(name).values, series.values) << name;
    }
    EXPECT_EQ(result.metrics, metrics);
  }
}

TEST_F(LadderOfRuns, RowsMadeReadyAheadOrCutAnewDoNotChangeTheRun) {
  RunConfig config = mini_config();
  config.steps = 20;  // past the end of an epoch
  config.accumulation = 2;
  const std::string plain = run("plain", config);
  config.data.prefetch = 3;
  expect_same_bits(plain, run("ahead", config));
  energy(config).data.cache = false;
  expect_same_bits(plain, run("both", config));
  config.backend = Backend::gloo;
  expect_same_bits(plain, run("real", config));
}

TEST_F(LadderOfRuns, RanksSayWhatTheyCommunicated) {
  RunConfig config = mini_config();
  config.backend = Backend::gloo;
  config.trace = TraceLevel::off;
  const std::string dir = run("metered", config);
  const RankResult result = result_of(dir, 1);
  EXPECT_GT(result.communication_seconds, 0);
  EXPECT_LT(result.communication_seconds, result.train_seconds);
  EXPECT_GT(result.communication_share, 0);
  EXPECT_GT(result.step_seconds, 0);
  // A ring over 3 ranks brings each of them 4/3 of the gradients, and the loss its candidates besides.
  EXPECT_GT(result.received_bytes, result.weight_bytes * 4 / 3);
  EXPECT_EQ(result.parameters_hash, result_of(dir).parameters_hash);
  config.layout = {1, 6};
  const std::string alone = run("alone", config);
  const RankResult one = result_of(alone);
  EXPECT_EQ(one.received_bytes, 0);
  EXPECT_LT(one.communication_share, 0.05);
}

TEST_F(Measurements, AreThoseOfThePlannersTable) {
  const auto names_of = [](const auto& map) {
    std::set<std::string> names;
    for (const auto& [name, value] : map) names.insert(name);
    return names;
  };
  int runs = 0;
  for (const Negatives negatives : {Negatives::global, Negatives::mixed}) {
    // 2 test pairs; 18 test and 9 held-out pairs; 480 and 48: each fewer than what some metrics are measured
    // on.
    for (const auto& [series, held_out, steps] : {std::tuple(2, 1, 24), {6, 3, 28}, {40, 4, 46}}) {
      RunConfig config = mini_config();
      config.layout = {1, 2};
      energy(config).negatives = negatives;
      config.data.drop_last = false;
      config.data.series = series;
      energy(config).data.holdout_series = held_out;
      config.data.series_steps = steps;
      config.steps = 4;
      config.eval_every = 2;
      const std::string dir = run("run-" + std::to_string(runs++), config);
      const RankResult result = result_of(dir);
      const std::optional<SampleCounts> pairs = spec_of(config).counted_samples(config);
      ASSERT_TRUE(pairs);
      std::set<std::string> metrics, curves;
      for (const MetricSpec& entry : spec_of(config).metrics()) {
        if (!unmeasured(entry.name, config, pairs).empty()) continue;
        curves.emplace(entry.name);
        if (entry.when != MetricSpec::When::step) metrics.emplace(entry.name);
      }
      EXPECT_EQ(names_of(result.metrics), metrics) << pairs->test << " test pairs";
      EXPECT_EQ(names_of(result.curves), curves);
      for (const MetricSpec& entry : spec_of(config).metrics()) {
        const auto curve = result.curves.find(std::string(entry.name));
        if (curve == result.curves.end()) continue;
        const std::size_t points = entry.when == MetricSpec::When::step         ? 4
                                   : entry.when == MetricSpec::When::evaluation ? 2
                                                                                   : 1;
        EXPECT_EQ(curve->second.steps.size(), points) << entry.name;
      }
    }
  }
}

TEST_F(LadderOfRuns, AFlippedBitIsFoundWhereItWasFlipped) {
  RunConfig config = mini_config();
  const std::string clean = run("clean", config);
  expect_same_bits(clean, run("again", config));
  config.mutant.name = "flip_bit";
  config.mutant.step = 5;
  config.mutant.rank = 2;
  config.mutant.tensor = "energy_head.query.weight";
  config.mutant.bit = 3;
  const Mechanism found = compare_runs({clean, run("flipped", config), {}, {}});
  ASSERT_EQ(found.verdict, VerdictKind::divergent);
  ASSERT_TRUE(found.first_divergence);
  EXPECT_EQ(found.first_divergence->step, 5);
  EXPECT_EQ(found.first_divergence->phase, "local gradients");
  EXPECT_EQ(found.first_divergence->rank, 2);
  EXPECT_EQ(found.first_divergence->where, "energy_head.query.weight");
}

TEST_F(LadderOfRuns, AThrowingRankEndsEveryRankWithItsReason) {
  for (const Backend kind : {Backend::emulated, Backend::gloo}) {
    const std::string id = kind == Backend::gloo ? "real" : "emulated";
    RunConfig config = mini_config();
    config.backend = kind;
    config.timeout_s = 5;
    config.mutant.name = "throw";
    config.mutant.step = 3;
    config.mutant.rank = 1;
    for (const int status : mini_run_statuses(folder_.path(), id, config)) EXPECT_NE(status, 0);
    const RankResult result = result_of(folder_ / id, 1);
    EXPECT_EQ(result.status, "failed");
    EXPECT_EQ(result.steps_done, 3);
    EXPECT_NE(result.error.find("planted"), std::string::npos) << result.error;
    EXPECT_EQ(result_of(folder_ / id).status, "failed");
  }
}

// Exact arithmetic: every layout of one batch trains the same bits, and what is planted is found where it first acts.

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

class ExactObjective : public MiniRuns, public testing::TestWithParam<Objective> {};

TEST_P(ExactObjective, TrainsTheSameBitsUnderEveryLayout) {
  RunConfig config = exact_config();
  GetParam().change(config);
  const std::string reference = run("reference", config);
  const std::string hash = result_of(reference).parameters_hash;
  const std::vector<double> losses = result_of(reference).curves.at("loss").values;
  for (const Division& division : divisions()) {
    const RunConfig cell = divided(config, division);
    const std::string dir = run(division.name, cell);
    for (int rank = 0; rank < division.layout.world_size; ++rank) {
      const RankResult own = result_of(dir, rank);
      EXPECT_EQ(own.parameters_hash, hash) << division.name << ", rank " << rank;
      EXPECT_EQ(own.curves.at("loss").values, losses) << division.name << ", rank " << rank;
      // Rank 0 has evaluations besides.
      if (rank == 0) continue;
      EXPECT_EQ(own.curves.size(), result_of(dir, 1).curves.size()) << division.name << ", rank " << rank;
    }
    const Mechanism mechanism = compared(reference, config, dir, cell);
    EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << division.name << ": " << mechanism.sentence;
    EXPECT_EQ(mechanism.compared_steps, config.steps) << division.name;
    EXPECT_EQ(result_of(dir).metrics, result_of(reference).metrics) << division.name;
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

TEST_F(ExactArithmetic, TrainsHundredsOfStepsWithoutADifferentBit) {
  RunConfig config = exact_config();
  config.steps = support::whole_or(60, 200);
  const std::string hash = result_of(run("reference", config)).parameters_hash;
  for (const Division& division : divisions()) {
    if (division.backend == Backend::gloo) continue;
    RunConfig cell = divided(config, division);
    EXPECT_EQ(result_of(run(division.name, cell)).parameters_hash, hash) << division.name;
  }
}

TEST_F(ExactArithmetic, TakesMicroStepsAsTheirRowsTurns) {
  RunConfig config = exact_config();
  config.accumulation = 3;
  const std::string reference = run("reference", config);
  for (const Layout& layout : {Layout{2, 12}, Layout{4, 6}, Layout{8, 3}}) {
    RunConfig cell = config;
    cell.layout = layout;
    const std::string dir = run(std::to_string(layout.world_size), cell);
    const Mechanism mechanism = compared(reference, config, dir, cell);
    EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << mechanism.sentence;
  }
  // Explicit candidates are each row's own: there a micro-step changes nothing at all.
  energy(config).negatives = Negatives::layer;
  RunConfig whole = config;
  whole.accumulation = 1;
  EXPECT_EQ(result_of(run("parts", config)).parameters_hash,
            result_of(run("whole", whole)).parameters_hash);
}

TEST_F(ExactArithmetic, IsTheNativeGradientButForRounding) {
  RunConfig config = exact_config();
  config.steps = 1;
  RunConfig native = config;
  native.arithmetic = Arithmetic::native;
  const RankResult exact = result_of(run("exact", config));
  const RankResult rounded = result_of(run("native", native));
  for (const char* curve : {"loss", "gradient_norm"}) {
    const double expected = rounded.curves.at(curve).values.front(), found = exact.curves.at(curve).values.front();
    EXPECT_NEAR(found, expected, 1e-5 * std::abs(expected)) << curve;
  }
}

TEST_F(ExactArithmetic, GoesOnUnderFewerRanksAsIfNothingHadHappened) {
  RunConfig config = exact_config();
  config.steps = 300;
  config.schedule = Schedule::cosine;
  const RankResult whole = result_of(run("whole", config));
  RunConfig eight = config, four = config, one = config;
  eight.layout = {8, 3};
  eight.snapshot_steps = {100};
  eight.stop_after = 101;  // a snapshot is taken before its step
  run("eight", eight);
  four.layout = {4, 6};
  four.resume_from = "eight";
  four.resume_step = 100;
  four.snapshot_steps = {200};
  four.stop_after = 201;
  run("four", four);
  one.resume_from = "four";
  one.resume_step = 200;
  const RankResult last = result_of(run("one", one));
  EXPECT_EQ(last.parameters_hash, whole.parameters_hash);
  EXPECT_EQ(last.metrics, whole.metrics);
}

struct Fault {
  const char* mutant;
  const char* phase;
  bool of_row;
  std::function<void(RunConfig&)> change = [](RunConfig&) {};
};

class ExactFault : public MiniRuns, public testing::TestWithParam<Fault> {};

TEST_P(ExactFault, IsFoundInAFreeRunAtTheVeryStep) {
  RunConfig config = exact_config();
  GetParam().change(config);
  RunConfig cell = config;
  cell.layout = {8, 3};
  cell.mutant.name = GetParam().mutant;
  cell.mutant.step = 3;
  cell.mutant.rank = 5;
  const std::string reference = run("reference", config);
  const std::string dir = run("cell", cell);
  const Mechanism mechanism = compared(reference, config, dir, cell);
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
TEST_F(ExactArithmetic, NamesACauseFromTheValuesOfAFreeRun) {
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
    RunConfig config = exact_config();
    config.trace = TraceLevel::full;
    config.clip_norm = 0.01;
    RunConfig cell = config;
    cell.layout = {8, 3};
    each.change(cell);
    const int rank = std::string(each.mutant) == "flip_bit" ? 5 : -1;
    cell.mutant = {each.mutant, 3, rank, "energy_head.key.weight", 4, 1.0};
    const Mechanism mechanism = compared(run("reference", config), config, run("cell", cell), cell);
    ASSERT_TRUE(mechanism.first_divergence && mechanism.cause) << each.mutant << ": " << mechanism.sentence;
    EXPECT_EQ(mechanism.first_divergence->step, 3) << each.mutant << ": " << mechanism.sentence;
    EXPECT_EQ(mechanism.cause->code, each.code) << mechanism.cause->evidence;
  }
}

TEST_F(ExactArithmetic, FindsOneFlippedBitOfOneRankHundredsOfStepsIn) {
  RunConfig config = exact_config();
  config.steps = support::whole_or(120, 320);
  const int64_t planted = config.steps - 3;
  RunConfig cell = config;
  cell.layout = {8, 3};
  cell.mutant = {"flip_bit", planted, 6, "energy_head.key.weight", 0, 1.0};
  const Mechanism mechanism =
      compared(run("a", config), config, run("b", cell), cell);
  ASSERT_TRUE(mechanism.first_divergence) << mechanism.sentence;
  EXPECT_EQ(mechanism.first_divergence->step, planted);
  EXPECT_EQ(mechanism.first_divergence->where, "energy_head.key.weight");
  EXPECT_EQ(mechanism.first_divergence->rank, 6);
}

TEST_F(ExactArithmetic, NamesTheRowThatIsNoNumberBeforeAnythingIsSummed) {
  RunConfig cell = exact_config();
  cell.layout = {3, 8};
  cell.mutant.name = "nan_gradient";
  cell.mutant.step = 2;
  cell.mutant.rank = 1;
  for (const int status : mini_run_statuses(folder_.path(), "cell", cell)) EXPECT_NE(status, 0);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string error = result_of(folder_.path() + "/cell", rank).error;
    EXPECT_NE(error.find("step 2: row 1 of the step's batch (sample "), std::string::npos) << error;
    EXPECT_NE(error.find("rank 1) has NaN or infinity in its gradient of "), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace lockstep
