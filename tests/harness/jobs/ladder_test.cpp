// R1 = R2: emulated ranks give the bits of real ones, at every step, record by record.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/compare/replay.h"
#include "harness/verdict/config/metrics.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/questions/judge.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/reader.h"
#include "scenarios/energy/config.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

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

class Ladder : public testing::TestWithParam<Rung> {};

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
  const TempFolder folder;
  RunConfig config = config_of(GetParam());
  const std::string emulated = mini_run(folder.path(), "emulated", config);
  config.backend = Backend::gloo;
  const std::string real = mini_run(folder.path(), "real", config);
  const Mechanism mechanism = compare_runs({emulated, real, {}, {}});
  EXPECT_EQ(mechanism.verdict, VerdictKind::identical) << mechanism.sentence;
  EXPECT_GE(mechanism.compared_steps, config.steps);

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
    if (record.phase == phase && !record.payload.empty()) {
      std::vector<double>& values = gradients[record.name];
      values.resize(record.payload.size() / sizeof(double));
      std::memcpy(values.data(), record.payload.data(), record.payload.size());
    }
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

TEST(Oracle, OneProcessComputesWhatRanksOfAnyPartitioningMean) {
  const TempFolder folder;
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
    mini_run(folder.path(), id + "-reference", reference);
    reference.snapshot_steps = config.snapshot_steps = {};
    reference.forced = {id + "-reference", {2}, 0, {}};
    config.forced = reference.forced;
    const std::string expected = mini_run(folder.path(), id + "-reference-forced", reference);
    const std::string emulated = mini_run(folder.path(), id + "-ranks", config);
    config.backend = Backend::gloo;
    const std::string real = mini_run(folder.path(), id + "-real", config);
    const Furthest of_emulated = furthest(emulated, expected), of_real = furthest(real, expected);
    EXPECT_LT(of_emulated.difference, 1e-13) << loss << ", emulated: " << told(of_emulated);
    EXPECT_LT(of_real.difference, 1e-13) << loss << ", real: " << told(of_real);
    EXPECT_EQ(first_other_gradient(emulated, real, 3), "") << loss << ", emulated against real";
    config.backend = Backend::emulated;
    // Rows in another order keep the ranks that they were partitioned to.
    for (const int repeat : {1, 2}) {
      reference.forced.repeat = repeat;
      const std::string run = mini_run(folder.path(), id + "-repeat" + std::to_string(repeat), reference);
      const Furthest of_repeat = furthest(run, expected);
      EXPECT_LT(of_repeat.difference, 1e-13) << loss << ", repeat " << repeat << ": " << told(of_repeat);
    }
    config.rows = RowPartition::equal;
    EXPECT_GT(furthest(mini_run(folder.path(), id + "-equal", config), expected).difference, 1e-6);
  }
}

TEST(Oracle, BlocksGoToRanksWhole) {
  const TempFolder folder;
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
  mini_run(folder.path(), "reference", reference);
  reference.snapshot_steps = {};
  reference.forced = {"reference", {1}, 0, {}};
  config.forced = reference.forced;
  const std::string expected = mini_run(folder.path(), "reference-forced", reference);
  const Furthest of_ranks = furthest(mini_run(folder.path(), "ranks", config), expected);
  EXPECT_LT(of_ranks.difference, 1e-13) << told(of_ranks);
}

TEST(Forced, AKeptStepStandsForTheRunThatItCameFrom) {
  const TempFolder folder;
  RunConfig config = mini_config();
  config.snapshot_steps = {2};
  const std::string free = mini_run(folder.path(), "free", config);
  const std::string kept = folder.path() + "/kept.trace";
  ASSERT_TRUE(keep_step(free + "/rank-0.trace", 2, kept));
  config.snapshot_steps = {};
  config.forced = {"free", {2}, 0, {}};
  const Trace of_run = read_trace(mini_run(folder.path(), "of_run", config) + "/rank-0.trace");
  config.forced = {"", {2}, 0, kept};
  const Trace of_step = read_trace(mini_run(folder.path(), "of_step", config) + "/rank-0.trace");
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

TEST(Ladder, TraceLevelsDoNotChangeTheRun) {
  const TempFolder folder;
  RunConfig config = mini_config();
  std::map<std::string, Series> expected;
  std::map<std::string, double> metrics;
  for (const TraceLevel level : {TraceLevel::off, TraceLevel::hash, TraceLevel::stats, TraceLevel::full}) {
    config.trace = level;
    const std::string dir =
        mini_run(folder.path(), "level-" + std::to_string(static_cast<int>(level)), config);
    const RankResult result = read_rank_result(dir + "/rank-0.result.json");
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

TEST(Ladder, RowsMadeReadyAheadOrCutAnewDoNotChangeTheRun) {
  const TempFolder folder;
  RunConfig config = mini_config();
  config.steps = 20;  // past the end of an epoch
  config.accumulation = 2;
  const std::string plain = mini_run(folder.path(), "plain", config);
  config.data.prefetch = 3;
  EXPECT_EQ(compare_runs({plain, mini_run(folder.path(), "ahead", config), {}, {}}).verdict,
            VerdictKind::identical);
  energy(config).data.cache = false;
  EXPECT_EQ(compare_runs({plain, mini_run(folder.path(), "both", config), {}, {}}).verdict,
            VerdictKind::identical);
  config.backend = Backend::gloo;
  EXPECT_EQ(compare_runs({plain, mini_run(folder.path(), "real", config), {}, {}}).verdict,
            VerdictKind::identical);
}

TEST(Ladder, RanksSayWhatTheyCommunicated) {
  const TempFolder folder;
  RunConfig config = mini_config();
  config.backend = Backend::gloo;
  config.trace = TraceLevel::off;
  const std::string dir = mini_run(folder.path(), "metered", config);
  const RankResult result = read_rank_result(dir + "/rank-1.result.json");
  EXPECT_GT(result.communication_seconds, 0);
  EXPECT_LT(result.communication_seconds, result.train_seconds);
  EXPECT_GT(result.communication_share, 0);
  EXPECT_GT(result.step_seconds, 0);
  // A ring over 3 ranks brings each of them 4/3 of the gradients, and the loss its candidates besides.
  EXPECT_GT(result.received_bytes, result.weight_bytes * 4 / 3);
  EXPECT_EQ(result.parameters_hash, read_rank_result(dir + "/rank-0.result.json").parameters_hash);
  config.layout = {1, 6};
  const std::string alone = mini_run(folder.path(), "alone", config);
  const RankResult one = read_rank_result(alone + "/rank-0.result.json");
  EXPECT_EQ(one.received_bytes, 0);
  EXPECT_LT(one.communication_share, 0.05);
}

TEST(Measurements, AreThoseOfThePlannersTable) {
  const TempFolder folder;
  const auto names_of = [](const auto& map) {
    std::set<std::string> names;
    for (const auto& [name, value] : map) names.insert(name);
    return names;
  };
  const auto as_set = [](const std::vector<std::string>& names) {
    return std::set<std::string>(names.begin(), names.end());
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
      const std::string dir = mini_run(folder.path(), "run-" + std::to_string(runs++), config);
      const RankResult result = read_rank_result(dir + "/rank-0.result.json");
      const std::optional<SampleCounts> pairs = spec_of(config).counted_samples(config);
      ASSERT_TRUE(pairs);
      EXPECT_EQ(names_of(result.metrics), as_set(metrics_written(config, *pairs)))
          << pairs->test << " test pairs";
      EXPECT_EQ(names_of(result.curves), as_set(curves_written(config, *pairs)));
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

TEST(Ladder, AFlippedBitIsFoundWhereItWasFlipped) {
  const TempFolder folder;
  RunConfig config = mini_config();
  const std::string clean = mini_run(folder.path(), "clean", config);
  EXPECT_EQ(compare_runs({clean, mini_run(folder.path(), "again", config), {}, {}}).verdict,
            VerdictKind::identical);
  config.mutant.name = "flip_bit";
  config.mutant.step = 5;
  config.mutant.rank = 2;
  config.mutant.tensor = "energy_head.query.weight";
  config.mutant.bit = 3;
  const Mechanism found = compare_runs({clean, mini_run(folder.path(), "flipped", config), {}, {}});
  ASSERT_EQ(found.verdict, VerdictKind::divergent);
  ASSERT_TRUE(found.first_divergence);
  EXPECT_EQ(found.first_divergence->step, 5);
  EXPECT_EQ(found.first_divergence->phase, "local gradients");
  EXPECT_EQ(found.first_divergence->rank, 2);
  EXPECT_EQ(found.first_divergence->where, "energy_head.query.weight");
}

TEST(Ladder, AThrowingRankEndsEveryRankWithItsReason) {
  for (const Backend kind : {Backend::emulated, Backend::gloo}) {
    const TempFolder folder;
    RunConfig config = mini_config();
    config.backend = kind;
    config.timeout_s = 5;
    config.mutant.name = "throw";
    config.mutant.step = 3;
    config.mutant.rank = 1;
    for (const int status : mini_run_statuses(folder.path(), "throws", config)) {
      EXPECT_NE(status, 0);
    }
    const RankResult result = read_rank_result(folder.path() + "/throws/rank-1.result.json");
    EXPECT_EQ(result.status, "failed");
    EXPECT_EQ(result.steps_done, 3);
    EXPECT_NE(result.error.find("planted"), std::string::npos) << result.error;
    EXPECT_EQ(read_rank_result(folder.path() + "/throws/rank-0.result.json").status, "failed");
  }
}

}  // namespace
}  // namespace lockstep
