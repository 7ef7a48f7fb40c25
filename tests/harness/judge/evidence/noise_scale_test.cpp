#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "harness/judge/evidence/arms.h"
#include "harness/judge/evidence/noise.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/matrix/read_matrix.h"
#include "scenarios/energy/spec.h"
#include "tests/support/made_run.h"
#include "tests/support/synthetic_matrix.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Gradients of rows whose mean and spread are known.
struct Planted {
  std::vector<double> gradient{0.3, -0.2, 0.1, 0.4, -0.1};  ///< |G|^2 = 0.31
  double row_sd = 1.2;                                      ///< S = 5 * 1.44 = 7.2 for every component alike
  double gradient_squared() const {
    return std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0);
  }
  double noise() const { return static_cast<double>(gradient.size()) * row_sd * row_sd; }
  double batch() const { return noise() / gradient_squared(); }

  /// Mean gradient of that many rows.
  std::vector<double> mean_of(int rows, std::mt19937_64& engine) const {
    std::normal_distribution<double> normal(0, row_sd / std::sqrt(static_cast<double>(rows)));
    std::vector<double> mean = gradient;
    for (double& value : mean) value += normal(engine);
    return mean;
  }
};

double squared(const std::vector<double>& values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

std::vector<NoiseStep> planted_steps(const Planted& planted, int steps, uint64_t seed) {
  constexpr int kRanks = 8, kRows = 3;
  std::mt19937_64 engine(seed);
  std::vector<NoiseStep> all;
  for (int step = 0; step < steps; ++step) {
    NoiseStep s{step, 0, 0, 1.0 / kRows, 1.0 / (kRanks * kRows)};
    std::vector<double> whole(planted.gradient.size(), 0.0);
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<double> own = planted.mean_of(kRows, engine);
      s.small_squared += squared(own) / kRanks;
      for (std::size_t i = 0; i < own.size(); ++i) whole[i] += own[i] / kRanks;
    }
    s.big_squared = squared(whole);
    all.push_back(s);
  }
  return all;
}

TEST(NoiseScale, IsUnbiasedInBothParts) {
  const Planted planted;
  constexpr int kSteps = 40'000;
  const std::vector<NoiseStep> steps = planted_steps(planted, kSteps, 1);
  const NoiseScale scale = estimate_noise_scale(steps).value();
  // Four standard errors of the mean, each measured over single steps.
  double squares_g = 0, squares_s = 0;
  for (const NoiseStep& step : steps) {
    const NoiseScale one = estimate_noise_scale({&step, 1}).value();
    squares_g += std::pow(one.gradient_squared - planted.gradient_squared(), 2);
    squares_s += std::pow(one.noise - planted.noise(), 2);
  }
  EXPECT_NEAR(scale.gradient_squared, planted.gradient_squared(), 4 * std::sqrt(squares_g) / kSteps);
  EXPECT_NEAR(scale.noise, planted.noise(), 4 * std::sqrt(squares_s) / kSteps);
  EXPECT_NEAR(scale.batch, planted.batch(), 0.1 * planted.batch());
  EXPECT_EQ(scale.steps, kSteps);
}

TEST(NoiseScale, ItsIntervalHoldsThePlantedOneAsOftenAsItSays) {
  const Planted planted;
  for (const auto& [steps, runs] : {std::pair(8, 4'000), std::pair(20, 2'000), std::pair(400, 200)}) {
    support::Proportion covered;
    for (; covered.trials < runs; ++covered.trials) {
      const NoiseScale scale =
          estimate_noise_scale(planted_steps(planted, steps, static_cast<uint64_t>(100 * steps + covered.trials))).value();
      EXPECT_LE(scale.interval.low, scale.batch);
      EXPECT_GE(scale.interval.high, scale.batch);
      covered.hits += scale.interval.low <= planted.batch() && planted.batch() <= scale.interval.high;
    }
    EXPECT_GE(support::certain_bounds(covered).high, 0.95) << steps << " steps: " << covered.hits << " of " << runs;
    EXPECT_GE(covered.hits, 0.93 * runs) << steps << " steps";
  }
}

TEST(NoiseScale, IsInfiniteWhereThereIsNoGradientButNoise) {
  Planted planted;
  planted.gradient.assign(5, 0.0);
  std::vector<NoiseStep> steps = planted_steps(planted, 400, 3);
  EXPECT_TRUE(std::isinf(estimate_noise_scale(steps)->interval.high));
  for (NoiseStep& step : steps) step.big_squared = step.small_squared / 9;
  EXPECT_TRUE(std::isinf(estimate_noise_scale(steps)->batch));
}

TEST(NoiseScale, IsZeroWhereRanksAgree) {
  std::vector<NoiseStep> steps(40, NoiseStep{0, 2.0, 2.0, 1.0 / 3, 1.0 / 24});
  const NoiseScale scale = estimate_noise_scale(steps).value();
  EXPECT_DOUBLE_EQ(scale.gradient_squared, 2.0);
  EXPECT_EQ(scale.noise, 0);
  EXPECT_EQ(scale.batch, 0);
}

TEST(NoiseScale, FollowsTheRunByBlocksOfSteps) {
  std::vector<NoiseStep> steps = planted_steps({}, 200, 4);
  Planted later;
  later.row_sd = 4.8;
  for (const NoiseStep& step : planted_steps(later, 200, 5)) {
    steps.push_back(step);
    steps.back().step += 200;
  }
  const NoiseScale scale = estimate_noise_scale(steps).value();
  ASSERT_EQ(scale.at.size(), 10U);
  EXPECT_EQ(scale.at.front(), 19);
  EXPECT_LT(scale.batch_at.front() * 3, scale.batch_at.back());
}

TEST(NoiseScale, SaysLittleOfFewStepsAndNothingOfNone) {
  EXPECT_FALSE(estimate_noise_scale({}));
  const std::vector<NoiseStep> steps = planted_steps({}, 2, 6);
  EXPECT_TRUE(std::isinf(estimate_noise_scale(steps)->interval.high));
  // A loss without negatives is 0, and so is its gradient.
  const std::vector<NoiseStep> zero(20, NoiseStep{0, 0, 0, 1.0, 1.0 / 24});
  EXPECT_FALSE(estimate_noise_scale(zero));
}

/// No sample comes twice: the data have no end.
std::vector<int64_t> ids_of(int step, int rank, int rows) {
  std::vector<int64_t> ids(static_cast<std::size_t>(rows));
  std::iota(ids.begin(), ids.end(), 1000 * step + 100 * rank);
  return ids;
}

/// Traces of a run whose rank r has rows[r] rows, written as training writes them.
void write_run(const TempFolder& folder, const Planted& planted, const std::vector<int>& rows, int steps,
               uint64_t seed, std::size_t cut_rank = 1000) {
  std::mt19937_64 engine(seed);
  const auto world = static_cast<int>(rows.size());
  const int all = std::accumulate(rows.begin(), rows.end(), 0);
  std::vector<std::vector<std::vector<double>>> own(static_cast<std::size_t>(steps));
  for (auto& step : own) {
    for (int count : rows) {
      std::vector<double> local(planted.gradient.size(), 0.0);
      if (count > 0) local = planted.mean_of(count, engine);
      // The loss of a rank is its rows' sum times ranks / all rows.
      for (double& value : local) value *= static_cast<double>(count) * world / all;
      step.push_back(std::move(local));
    }
  }
  const TraceHeader header{"hash", 0, world, "energy", TraceLevel::hash, "emulated"};
  support::write_ranks(folder.path(), header, [&](TraceWriter& writer, int of_rank) {
    const auto rank = static_cast<std::size_t>(of_rank);
    const int until = rank == cut_rank ? steps / 2 : steps;
    for (int step = 0; step < until; ++step) {
      const auto& locals = own[static_cast<std::size_t>(step)];
      std::vector<double> reduced(planted.gradient.size(), 0.0);
      for (const auto& local : locals) {
        for (std::size_t i = 0; i < reduced.size(); ++i) reduced[i] += local[i] / world;
      }
      const std::vector<int64_t> first = {2}, second = {3},
                                 ids = ids_of(step, static_cast<int>(rank), rows[rank]);
      const auto write = [&](Phase phase, const std::vector<double>& values, Sharing sharing) {
        writer.tensor(phase, "head.weight", {values.data(), DType::float64, first, {}}, sharing);
        writer.tensor(phase, "head.bias", {values.data() + 2, DType::float64, second, {}}, sharing);
      };
      writer.begin_step(step);
      writer.samples(ids);
      writer.scalar(Phase::loss, "loss", 1, Sharing::own);
      write(Phase::local_gradients, locals[rank], Sharing::own);
      write(Phase::reduced_gradients, reduced, Sharing::replicated);
      write(Phase::parameters, reduced, Sharing::replicated);
      writer.end_step();
    }
  });
}

RunConfig config_of(int world, int rows) {
  RunConfig config;
  config.layout = {world, rows};
  energy(config).negatives = Negatives::local;
  return config;
}

TEST(NoiseScale, IsReadFromTheTracesOfARunAndWeighsRanksByTheirRows) {
  const Planted planted;
  for (const auto& [rows, steps] : {std::pair(std::vector{3, 3, 3, 3}, 2000), {std::vector{1, 4, 7, 0}, 4000}}) {
    const TempFolder folder;
    write_run(folder, planted, rows, steps, rows[0] == 3 ? 11 : 12);
    const NoiseScale scale = read_noise_scale(config_of(4, 3), folder.path()).value();
    EXPECT_EQ(scale.small_batch, 3);
    EXPECT_EQ(scale.big_batch, 12);
    EXPECT_EQ(scale.steps, steps);
    EXPECT_NEAR(scale.noise, planted.noise(), 0.1 * planted.noise());
    EXPECT_LT(scale.interval.low, planted.batch());
    EXPECT_GT(scale.interval.high, planted.batch());
  }
}

/// A run of 4 ranks of 3 rows that goes again and again over samples that each have a gradient of one number.
void write_epochs(const TempFolder& folder, const std::vector<double>& gradient_of, int epochs) {
  constexpr std::size_t kRanks = 4, kRows = 3, kBatch = kRanks * kRows;
  std::mt19937_64 engine(21);
  std::vector<std::size_t> order(gradient_of.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::unique_ptr<TraceWriter>> writers;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    writers.push_back(std::make_unique<TraceWriter>(
        folder / ("rank-" + std::to_string(rank) + ".trace"),
        TraceHeader{"hash", static_cast<int>(rank), kRanks, "energy", TraceLevel::hash, "emulated"}));
  }
  int64_t step = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
    for (std::size_t first = 0; first + kBatch <= order.size(); first += kBatch, ++step) {
      double reduced = 0;
      for (std::size_t i = first; i < first + kBatch; ++i) reduced += gradient_of[order[i]] / kBatch;
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        std::vector<int64_t> ids;
        double local = 0;
        for (std::size_t k = 0; k < kRows; ++k) {
          const std::size_t id = order[first + k * kRanks + rank];
          ids.push_back(static_cast<int64_t>(id));
          local += gradient_of[id] / kRows;
        }
        const std::vector<int64_t> shape = {1};
        TraceWriter& writer = *writers[rank];
        writer.begin_step(step);
        writer.samples(ids);
        writer.tensor(Phase::local_gradients, "w", {&local, DType::float64, shape, {}}, Sharing::own);
        writer.tensor(Phase::reduced_gradients, "w", {&reduced, DType::float64, shape, {}},
                      Sharing::replicated);
        writer.end_step();
      }
    }
  }
  for (const auto& writer : writers) writer->finish();
}

TEST(NoiseScale, AllowsForDataThatComeToAnEnd) {
  // 60 samples, a noise scale of 40: taken as if they had no end it would be 40 / (1 - 40 / 60) = 120.
  std::vector<double> gradient_of(60);
  for (std::size_t i = 0; i < gradient_of.size(); ++i) gradient_of[i] = i % 2 == 0 ? 1.0 : -1.0;
  const double noise = 60.0 / 59.0, gradient = std::sqrt(noise / 40);
  for (double& g : gradient_of) g += gradient;
  const TempFolder folder;
  write_epochs(folder, gradient_of, 800);
  const NoiseScale scale = read_noise_scale(config_of(4, 3), folder.path()).value();
  EXPECT_EQ(scale.steps, 4000);
  EXPECT_NEAR(scale.noise, noise, 0.05);
  // Over seeds the standard deviation of |G|^2 is 7 % of it.
  EXPECT_NEAR(scale.batch, 40, 12);
  EXPECT_LT(scale.interval.low, 45);
  EXPECT_LT(scale.interval.high, 90);
}

TEST(NoiseScale, TakesTheStepsThatAllRanksHave) {
  const TempFolder folder;
  write_run(folder, {}, {3, 3}, 40, 13, 1);
  EXPECT_EQ(read_noise_scale(config_of(2, 3), folder.path())->steps, 20);
}

TEST(NoiseScale, IsNoneWhereTheTracesCannotTell) {
  const TempFolder folder;
  write_run(folder, {}, {3, 3}, 40, 14);
  RunConfig config = config_of(2, 3);
  ASSERT_TRUE(read_noise_scale(config, folder.path()));
  EXPECT_FALSE(read_noise_scale(config_of(1, 6), folder.path()));
  config.trace = TraceLevel::off;
  EXPECT_FALSE(read_noise_scale(config, folder.path()));
  config = config_of(2, 3);
  energy(config).invalid_rows = 0.2;
  EXPECT_FALSE(read_noise_scale(config, folder.path()));
  config = config_of(2, 3);
  config.mutant.name = "grad_scale";
  EXPECT_FALSE(read_noise_scale(config, folder.path()));
  EXPECT_THROW(read_noise_scale(config_of(3, 3), folder.path()), std::runtime_error);
}

TEST(NoiseScale, SaysForWhichCandidatesTheTheoryHolds) {
  RunConfig config = config_of(8, 3);
  EXPECT_THAT(noise_caveat(config), HasSubstr("more or fewer ranks of 3 rows"));
  config.accumulation = 3;
  EXPECT_THAT(noise_caveat(config), HasSubstr("more or fewer micro-steps of 1 rows"));
  energy(config).negatives = Negatives::global;
  EXPECT_THAT(noise_caveat(config), HasSubstr("does not apply"));
  energy(config).negatives = Negatives::adaptive;
  EXPECT_THAT(noise_caveat(config), HasSubstr("does not apply"));
  energy(config).negatives = Negatives::layer;
  EXPECT_THAT(noise_caveat(config), IsEmpty());
  config.data.block = 4;
  EXPECT_THAT(noise_caveat(config), HasSubstr("blocks of 4"));
}

TEST(NoiseScale, AsksAnUnknownTrainerForNoCandidates) {
  RunConfig config = config_of(8, 3);
  config.trainer = "theirs";
  EXPECT_THAT(noise_caveat(config), IsEmpty());
  config.data.block = 4;
  config.rank_seed = RankSeed::same;
  EXPECT_THAT(noise_caveat(config), StartsWith("Rows come in blocks of 4"));
  EXPECT_THAT(noise_caveat(config), HasSubstr("whole blocks. All ranks draw the same dropout"));
}

// How far two runs lie apart by step, from what they kept.

using testing::DoubleNear;
using testing::ElementsAre;

/// A run that kept its one parameter of two elements before steps 1 and 5, and a moment that no distance counts.
std::string write_run(const std::string& dir, const std::vector<float>& at_1, const std::vector<float>& at_5,
                      const std::string& parameter = "context_encoder.in.weight") {
  std::filesystem::create_directories(dir);
  TraceHeader header;
  header.config_hash = "hash";
  header.world_size = 1;
  header.trainer = "energy";
  TraceWriter trace(dir + "/rank-0.trace", header);
  for (int64_t step = 0; step < 6; ++step) {
    trace.begin_step(step);
    if (step == 1 || step == 5) {
      const std::vector<float>& values = step == 1 ? at_1 : at_5;
      const std::vector<int64_t> shape{std::ssize(values)};
      const TensorView view{values.data(), DType::float32, shape, {}};
      trace.tensor(Phase::snapshot, parameter, view, Sharing::replicated, {}, Keep::whole);
      const std::vector<float> moment{static_cast<float>(dir.size()) * 1000};
      const std::vector<int64_t> one{1};
      trace.tensor(Phase::snapshot, "first_moment/weight", {moment.data(), DType::float32, one, {}}, Sharing::replicated,
                   {}, Keep::whole);
    }
    trace.end_step();
  }
  trace.finish();
  return dir;
}

RunEvidence curves(double loss, double accuracy) {
  RunEvidence run;
  run.curves["loss"] = {{0, 1}, {3.0, loss}};
  run.curves["accuracy_24"] = {{1}, {accuracy}};
  return run;
}

TEST(DriftOf, IsTheDistanceInSharesOfTheLengthAndTheDifferencesOfCurves) {
  const TempFolder folder;
  const RunEvidence a = curves(2.0, 0.5), b = curves(2.25, 0.5), c = curves(2.0, 0.25);
  const std::string reference = write_run(folder / "a", {3, 4}, {3, 4});
  const std::vector<DriftPair> pairs{{&a, &b, reference, write_run(folder / "bb", {3, 4}, {3, 4.5})},
                                     {&a, &c, reference, write_run(folder / "ccc", {3, 4}, {3, 4})}};
  const std::vector<CurveBand> drift = drift_of(pairs, RunConfig{}, "accuracy_24");
  ASSERT_EQ(drift.size(), 4u);
  EXPECT_EQ(drift[0].metric, "parameters");
  EXPECT_THAT(drift[0].steps, ElementsAre(1, 5));
  EXPECT_THAT(drift[0].low, ElementsAre(0, 0));
  EXPECT_THAT(drift[0].high, ElementsAre(0, DoubleNear(0.1, 1e-12))) << "0.5 of a length of 5";
  EXPECT_THAT(drift[1].high, ElementsAre(0, 0)) << "this run has no such parameter";
  EXPECT_EQ(drift[2].metric, "loss");
  EXPECT_THAT(drift[2].high, ElementsAre(0, 0.25));
  EXPECT_THAT(drift[2].low, ElementsAre(0, 0));
  EXPECT_EQ(drift[3].metric, "accuracy_24");
  EXPECT_THAT(drift[3].steps, ElementsAre(1));
  EXPECT_THAT(drift[3].high, ElementsAre(0.25));
  const std::string words = drift_sentence(drift);
  EXPECT_EQ(words,
            "Differences by rounding alone up to step 5: parameters at most 1.0e-01 of their norm, "
            "parameters without a gradient 0, training loss at most "
            "2.5e-01, 24-way accuracy at most 2.5e-01.");
}

TEST(DriftOf, ParametersThatRoundingAloneMovesStandApart) {
  const TempFolder folder;
  const RunEvidence a = curves(2.0, 0.5);
  const std::string bias = "energy_head.energy.bias";
  const std::vector<DriftPair> pairs{{&a, &a, write_run(folder / "a", {3, 4}, {3, 4}, bias),
                                      write_run(folder / "b", {3, 4}, {3, 4.5}, bias)}};
  const std::vector<CurveBand> drift = drift_of(pairs, RunConfig{}, "accuracy_24");
  ASSERT_EQ(drift.size(), 4u);
  EXPECT_EQ(drift[0].metric, "parameters");
  EXPECT_THAT(drift[0].high, ElementsAre(0, 0));
  EXPECT_EQ(drift[1].metric, "parameters without a gradient");
  EXPECT_THAT(drift[1].high, ElementsAre(0, DoubleNear(0.1, 1e-12)));
}

TEST(DriftOf, AnotherModelHasNoDistanceAndADamagedTraceIsNamed) {
  const TempFolder folder;
  const RunEvidence none;
  const std::string reference = write_run(folder / "a", {3, 4}, {3, 4});
  const std::string other = write_run(folder / "b", {3, 4, 5}, {3, 4, 5});
  EXPECT_THAT(drift_of({{&none, &none, reference, other}}, RunConfig{}, "accuracy_24"), IsEmpty());
  EXPECT_EQ(drift_sentence({}), "");
  EXPECT_THROW(drift_of({{&none, &none, reference, folder / "nowhere"}}, RunConfig{}, "loss"), TraceError);
}

// A cell's planned runs where two cells are one run with two references.

TEST(PlannedArms, OfOneRunWithTwoReferencesKeepTheirForcedRunsApart) {
  const Matrix matrix = parse_matrix(
      "# Is it the same?\nname: arms\nseeds: 0..1\nquestion: outcome\nsteps: 40\nallow_unequal_batch: true\n"
      "reference: {same_as: cell, layout: 1x24, lr_scale: 1}\naxes: {layout: [8x3], negatives: [local]}\n"
      "include:\n  - {reference: {layout: 1x3, steps: 320}}\n  - {lr_scale: 0.125}\n"
      "power_controls: [{lr_scale: 0.125}]\n",
      "arms.yaml", {});
  const Plan plan = make_plan(matrix, "/nowhere", {});
  const PlannedArms arms(plan);
  const Cell &own = matrix.cells[0], &grown = matrix.cells[1];
  ASSERT_EQ(grown.name, "8x3 local against 1x3");
  // The run and its real prefix serve both; the gradients at 1x24's snapshots serve one.
  EXPECT_EQ(arms.pair_seeds(own)[1].cell, arms.pair_seeds(grown)[1].cell);
  EXPECT_NE(arms.pair_seeds(own)[1].reference, arms.pair_seeds(grown)[1].reference);
  EXPECT_NE(arms.single_run(grown, RunRole::certify), nullptr);
  EXPECT_NE(arms.single_run(own, RunRole::forced_cell), nullptr);
  EXPECT_EQ(arms.single_run(grown, RunRole::forced_cell), nullptr);
  EXPECT_TRUE(arms.forced_runs(grown).empty());
}

}  // namespace
}  // namespace lockstep
