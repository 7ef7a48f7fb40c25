#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/band.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "tests/support/made_run.h"
#include "tests/support/temp_folder.h"

// Free runs in exact arithmetic, compared with each other row by row from what their traces say.

namespace lockstep {
namespace {

using support::parts_at;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kSteps = 4, kRows = 6;

/// What a rank says of one row.
struct ToyRow {
  int64_t position = 0, sample = 0, inputs = 0, scores = 0, gradient = 0;
  float loss = 0;
};

struct ToyStep {
  int64_t step = 0;
  int rank = 0;
  std::vector<ToyRow> rows;
  std::vector<float> reduced{0.5F, 0.25F}, parameters{1.0F, 2.0F};
};

using Fault = std::function<void(ToyStep&)>;

ToyRow row_at(int64_t step, int64_t position) {
  const int64_t key = step * 100 + position;
  return {position, 10 + position, key + 1000, key + 2000, key + 3000, 0.5F + static_cast<float>(key)};
}

void write_integers(TraceWriter& trace, const char* name, const std::vector<int64_t>& values,
                    const std::vector<int64_t>& ids) {
  const std::vector<int64_t> shape{std::ssize(values)};
  trace.tensor(Phase::loss, name, {values.data(), DType::int64, shape, {}}, Sharing::own, ids, Keep::whole);
}

void write_floats(TraceWriter& trace, Phase phase, const char* name, const std::vector<float>& values, Sharing sharing,
                  const std::vector<int64_t>& ids, Keep keep) {
  const std::vector<int64_t> shape{std::ssize(values)};
  trace.tensor(phase, name, {values.data(), DType::float32, shape, {}}, sharing, ids, keep);
}

void write_step(TraceWriter& trace, const ToyStep& it) {
  std::vector<int64_t> ids, positions, inputs, scores, gradients;
  std::vector<float> losses;
  int64_t sum = 0;
  for (const ToyRow& row : it.rows) {
    ids.push_back(row.sample);
    positions.push_back(row.position);
    inputs.push_back(row.inputs);
    scores.push_back(row.scores);
    gradients.push_back(row.gradient);
    losses.push_back(row.loss);
    sum += row.gradient * 7;
  }
  trace.begin_step(it.step);
  trace.samples(ids);
  write_integers(trace, "row_positions", positions, ids);
  write_integers(trace, "row_inputs", inputs, ids);
  write_integers(trace, "row_scores", scores, ids);
  write_floats(trace, Phase::loss, "row_losses", losses, Sharing::own, ids, Keep::whole);
  write_integers(trace, "row_gradients", gradients, ids);
  write_integers(trace, "row_gradients_by_tensor", {sum}, {});
  write_floats(trace, Phase::reduced_gradients, "weight", it.reduced, Sharing::replicated, {}, Keep::by_level);
  write_floats(trace, Phase::parameters, "weight", it.parameters, Sharing::replicated, {}, Keep::by_level);
  trace.end_step();
}

class ExactRuns : public testing::Test {
 protected:
  std::string write_run(const std::string& name, int world_size, const Fault& fault = nullptr) {
    const std::string dir = folder_ / name;
    const TraceHeader header{"hash", 0, world_size, "energy", TraceLevel::hash, ""};
    support::write_ranks(dir, header, [&](TraceWriter& trace, int rank) {
      for (int64_t step = 0; step < kSteps; ++step) {
        ToyStep it{step, rank, {}, {0.5F, 0.25F}, {1.0F, 2.0F}};
        for (int64_t position = rank; position < kRows; position += world_size) it.rows.push_back(row_at(step, position));
        if (fault) fault(it);
        write_step(trace, it);
      }
    });
    return dir;
  }

  /// One process against three ranks.
  Mechanism with(const Fault& fault) {
    RunConfig reference, cell;
    reference.arithmetic = cell.arithmetic = Arithmetic::exact;
    reference.layout = {1, 6};
    cell.layout = {3, 2};
    return compare_runs({write_run("a", 1), write_run("b", 3, fault), {}, {}, &reference, &cell});
  }

  TempFolder folder_;
};

/// The fault in the row at place 4 of step 2, which rank 1 of 3 has.
Fault in_row_4(const std::function<void(ToyRow&)>& change) {
  return [change](ToyStep& it) {
    for (ToyRow& row : it.rows) {
      if (it.step == 2 && row.position == 4) change(row);
    }
  };
}

TEST_F(ExactRuns, OfAnyLayoutAreIdentical) {
  const Mechanism result = with(nullptr);
  EXPECT_EQ(result.verdict, VerdictKind::identical) << result.sentence;
  EXPECT_EQ(result.compared_steps, kSteps);
  EXPECT_FALSE(result.first_divergence.has_value());
}

TEST_F(ExactRuns, ADifferenceHasStepPhaseRowSampleAndRank) {
  struct Case {
    std::function<void(ToyRow&)> change;
    std::string phase, where;
  };
  const std::vector<Case> cases{
      {[](ToyRow& row) { ++row.inputs; }, "energies", "inputs"},
      {[](ToyRow& row) { ++row.scores; }, "energies", "energies"},
      {[](ToyRow& row) { row.loss += 1; }, "loss", "row_losses"},
      {[](ToyRow& row) { ++row.gradient; }, "local gradients", "weight"},
  };
  for (const Case& each : cases) {
    const Mechanism result = with(in_row_4(each.change));
    ASSERT_THAT(result, parts_at({.step = 2, .phase = each.phase, .rank = 1, .where = each.where}));
    EXPECT_EQ(result.first_divergence->row, 4);
    EXPECT_EQ(result.first_divergence->sample, 14);
    EXPECT_THAT(result.first_divergence->sentence,
                AllOf(HasSubstr("in row 4 (sample 14), which rank 1 had"), HasSubstr("step 2")));
  }
}

TEST_F(ExactRuns, WhatComesFirstInTheStepIsNamedAndFurtherRowsAreCounted) {
  const Mechanism result = with([](ToyStep& it) {
    for (ToyRow& row : it.rows) {
      if (it.step >= 1 && row.position >= 2) ++row.scores, ++row.gradient;
    }
    if (it.step >= 1) it.reduced[0] = 9;
  });
  ASSERT_THAT(result, parts_at({.step = 1, .where = "energies"}));
  EXPECT_EQ(result.first_divergence->row, 2);
  EXPECT_THAT(result.first_divergence->sentence, HasSubstr("so do 3 further rows"));
}

TEST_F(ExactRuns, ASampleAtAnotherPlaceAndALostRowAreNamed) {
  const Mechanism moved = with(in_row_4([](ToyRow& row) { row.sample = 99; }));
  ASSERT_THAT(moved, parts_at({.phase = "samples"}));
  EXPECT_EQ(moved.first_divergence->row, 4) << moved.first_divergence->sentence;
  EXPECT_EQ(moved.first_divergence->sample, 99);
  const Mechanism lost = with([](ToyStep& it) {
    if (it.step == 2 && it.rank == 2) it.rows.pop_back();
  });
  ASSERT_THAT(lost, parts_at({.step = 2, .phase = "samples"}));
}

TEST_F(ExactRuns, WhatAllRanksHoldAlikeIsComparedOnEachOfThem) {
  const Mechanism result = with([](ToyStep& it) {
    if (it.step == 3 && it.rank == 2) it.parameters[1] = 2.0000002F;
  });
  ASSERT_THAT(result, parts_at({.step = 3, .phase = "parameters", .rank = 2, .where = "weight"}));
  const Mechanism all = with([](ToyStep& it) {
    if (it.step == 3) it.parameters[1] = 2.0000002F;
  });
  ASSERT_THAT(all, parts_at({.rank = kAllRanks}));
}

TEST_F(ExactRuns, TheFactsNameWhatBothRecorded) {
  const Mechanism whole = with(nullptr);
  EXPECT_EQ(whole.verdict, VerdictKind::identical);
  for (const char* name : {"energies", "loss", "local gradients", "reduced gradients", "parameters"}) EXPECT_EQ(support::fact_of(whole, name), "same");
  const Mechanism without = with([](ToyStep& it) { it.rows.clear(); });
  EXPECT_EQ(without.verdict, VerdictKind::divergent) << "rows that are lost are a difference";
}

using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

/// Labels of rows, `width` values for each.
Record labels(const Ids& ids, const Ids& values, const std::string& name = "labels") {
  Record record;
  record.phase = Phase::inputs;
  record.name = name;
  record.dtype = DType::int64;
  record.ids = ids;
  record.shape = {std::ssize(ids)};
  if (values.size() != ids.size()) record.shape.push_back(static_cast<int64_t>(values.size() / ids.size()));
  record.payload.resize(values.size() * sizeof(int64_t));
  std::memcpy(record.payload.data(), values.data(), record.payload.size());
  return record;
}

StepOfRun step_of(const std::vector<std::vector<Record>>& ranks) {
  StepOfRun step;
  step.step = 5;
  for (const std::vector<Record>& records : ranks) step.ranks.push_back({5, records});
  return step;
}

auto inputs_difference(const StepOfRun& a, const StepOfRun& b) { return first_exact_difference(a, b, false); }

TEST(InputsDifference, IsNoneWhereEachSampleHoldsTheSameOnWhateverRank) {
  const StepOfRun one = step_of({{labels({7, 8, 9}, {70, 80, 90})}}), several = step_of({{labels({9, 7}, {90, 70})}, {labels({8}, {80})}});
  EXPECT_FALSE(inputs_difference(one, several));
  EXPECT_FALSE(inputs_difference(several, one));
}

TEST(InputsDifference, TellsSampleRankAndPlace) {
  struct Case {
    StepOfRun a, b;
    int64_t sample;
    int rank;
    std::string expected, actual;
  };
  const StepOfRun one = step_of({{labels({7, 8}, {1, 2, 3, 4, 5, 6})}}),
                  short_rows = step_of({{labels({7, 8}, {1, 2})}});
  for (const Case& each : {Case{one, step_of({{labels({7}, {1, 2, 3})}, {labels({8}, {4, 0, 6})}}), 8, 1, "5 at place 1 of 3", "0 at place 1 of 3"},
                           Case{short_rows, step_of({{labels({7}, {5})}, {labels({8}, {6})}}), 7, kAllRanks, "1", "5"},
                           Case{step_of({{labels({7}, {1, 2, 3})}}), step_of({{labels({7}, {1, 2})}}), 7, 0, "3 values", "2 values"}}) {
    const auto found = inputs_difference(each.a, each.b);
    ASSERT_TRUE(found) << each.expected;
    const Divergence& it = found->divergence;
    EXPECT_EQ(std::tuple(found->phase, it.where, it.rank, it.sample.value(), it.expected, it.actual),
              std::tuple(Phase::inputs, "labels", each.rank, each.sample, each.expected, each.actual));
  }
}

TEST(InputsDifference, IsNoneInPlacesThatAreIgnored) {
  EXPECT_FALSE(inputs_difference(step_of({{labels({7}, {1, 2, -100, -100})}}), step_of({{labels({7}, {1, 2})}})));
  EXPECT_FALSE(inputs_difference(step_of({{labels({7}, {1, 2})}}), step_of({{labels({7}, {-1, 1, 2})}}))) << "padded at the beginning";
  EXPECT_TRUE(inputs_difference(step_of({{labels({7}, {1, 2, -100})}}), step_of({{labels({7}, {1, 3})}})));
  EXPECT_TRUE(inputs_difference(step_of({{labels({7}, {1, 2, -100})}}), step_of({{labels({7}, {1, -100})}}))) << "a row that is cut";
}

TEST(InputsDifference, IsNoneOfWhatOnlyOneRunHasOrWhoseIdsOrValuesWereNotKept) {
  const StepOfRun one = step_of({{labels({7, 8}, {1, 2})}});
  EXPECT_FALSE(inputs_difference(one, step_of({{labels({7, 8}, {5, 6}, "inputs")}}))) << "another name";
  EXPECT_FALSE(inputs_difference(one, step_of({{labels({17, 18}, {5, 6})}}))) << "other samples are told elsewhere";
  StepOfRun without_values = step_of({{labels({7, 8}, {5, 6})}}), without_ids = without_values;
  without_values.ranks[0].records[0].payload.clear();
  without_ids.ranks[0].records[0].ids.clear();
  EXPECT_FALSE(inputs_difference(one, without_values));
  EXPECT_FALSE(inputs_difference(one, without_ids));
}

TEST(InputsDifference, OfASampleThatAStepHasTwiceTheFirstCounts) {
  const StepOfRun one = step_of({{labels({7, 7}, {1, 9})}});
  EXPECT_FALSE(inputs_difference(one, step_of({{labels({7}, {1})}})));
  EXPECT_TRUE(inputs_difference(one, step_of({{labels({7}, {9})}})));
}

// What float64 twins allow a difference, and rows whose columns rounding chooses.

constexpr double kEpsilon = 0x1p-23;

/// Two gradients: one with terms of its own size, and one that is zero by symmetry.
ForcedValues twin() {
  ForcedValues wide;
  wide.gradients = {{"head.weight", {2}, {3, 4}, 0x1p-52}, {"head.bias", {1}, {1e-17}, 0x1p-52}};
  wide.term_sums = {{"head.weight", {2}, {30, 40}}, {"head.bias", {1}, {1e-17}}};
  wide.loss = 2.0;
  wide.gradient_norm = 5.0;
  return wide;
}

ForcedValues rounded(double weight_error, double bias_error) {
  ForcedValues narrow = twin();
  narrow.gradients[0].values[0] += weight_error;
  narrow.gradients[1].values[0] += bias_error;
  narrow.loss = 2.0 + 1e-6;
  narrow.epsilon = narrow.working_epsilon = kEpsilon;
  return narrow;
}

TwinBounds bounds(TwinQuestion question, double weight_error = 1e-6, double bias_error = 1e-7) {
  return {question, rounded(weight_error, bias_error), twin()};
}

TEST(TwinBounds, OfMeaningFollowTheTermsAndLeaveRoomWhereSymmetryCancels) {
  const TwinBounds meaning = bounds(TwinQuestion::meaning);
  const double own = 64 * 0x1p-29;
  EXPECT_NEAR(meaning.of_gradient("head.weight"), 1e-12 * 50 + 1e-14 * 50 + own * 1e-6, 1e-20);
  EXPECT_DOUBLE_EQ(meaning.of_gradient("head.bias"), 1e-12 * 1e-17 + 1e-14 * 50 + own * 1e-7);
  EXPECT_EQ(meaning.of_gradient("no such tensor"), 0);
}

TEST(TwinBounds, OfMeaningAreNoWiderForAPrecisionThatRoundsMore) {
  ForcedValues coarse = rounded(1e-2, 1e-3);
  coarse.working_epsilon = 0x1p-8;
  const double of_coarse = TwinBounds(TwinQuestion::meaning, coarse, twin()).of_gradient("head.weight");
  EXPECT_LT(of_coarse, 1.01 * (1e-12 * 50 + 1e-14 * 50)) << "bfloat16's own error says nothing of float64's but its size";
}

TEST(TwinBounds, OfMeaningLetNothingThroughThatFloat32Feels) {
  // What rounding of float32 does to the same tensor is a million times as much.
  EXPECT_LT(bounds(TwinQuestion::meaning).of_gradient("head.bias"), 1e-5 * 1e-7);
}

TEST(TwinBounds, OfRoundingFollowTheReferencesOwn) {
  const TwinBounds rounding = bounds(TwinQuestion::arithmetic);
  EXPECT_NEAR(rounding.of_gradient("head.weight"), 16 * 1e-6 + kEpsilon * (8 * 50 + 4 * 50), 1e-13);
  EXPECT_GT(bounds(TwinQuestion::arithmetic, 1e-3).of_gradient("head.weight"), 0.016);
  EXPECT_DOUBLE_EQ(rounding.of_loss(2), 16 * std::abs(1e-6 + 2.0 - 2.0) + 4 * kEpsilon * 8 * 2);
}

TEST(TwinBounds, AReferenceThatIsNoNumberAllowsNothingMore) {
  const TwinBounds rounding = bounds(TwinQuestion::arithmetic, std::nan(""));
  EXPECT_DOUBLE_EQ(rounding.of_gradient("head.weight"), kEpsilon * (8 * 50 + 4 * 50));
}

TEST(TwinBounds, TheReferencesWorstStepCountsAtEach) {
  LargestErrors errors;
  add_errors(errors, rounded(5e-3, 0), twin());
  add_errors(errors, rounded(1e-6, 0), twin());
  for (const TwinQuestion question : {TwinQuestion::meaning, TwinQuestion::arithmetic}) {
    const TwinBounds quiet(question, rounded(1e-6, 1e-7), twin(), errors);
    EXPECT_NEAR(quiet.of_gradient("head.weight"), bounds(question, 5e-3, 1e-7).of_gradient("head.weight"), 1e-9) << "5e-3 of terms of 50";
    EXPECT_EQ(quiet.of_gradient("head.bias"), bounds(question).of_gradient("head.bias"));
  }
}

TEST(TwinBounds, APrecisionWithoutADigitLeftMeasuresNothing) {
  const auto of = [](double error) {
    ForcedValues coarse = rounded(error, 0);
    coarse.working_epsilon = 0x1p-8;
    return TwinBounds(TwinQuestion::meaning, coarse, twin()).of_gradient("head.weight");
  };
  EXPECT_LT(of(6), 1e-9);
  EXPECT_NEAR(of(7), 64 * 0x1p-29 * 7, 1e-9) << "of terms of 50 an eighth is 6.25";
}

Scores one_row(std::vector<double> values) {
  Scores scores;
  scores.rows = {{7, 0, std::move(values)}};
  scores.columns = {{5, 6, 7, 8}};
  return scores;
}

int64_t two(int64_t) { return 2; }

TEST(RowTakenOtherwise, AsksWhichColumnsAreTakenAndNotInWhatOrder) {
  const Scores wide = one_row({1, 2, 0, 3});
  EXPECT_EQ(row_taken_otherwise(wide, one_row({2, 1, 9, 3}), &two), -1) << "5 and 6 in both; 7 is the row's own";
  EXPECT_EQ(row_taken_otherwise(wide, one_row({1, 3.5, 0, 3}), &two), 7) << "8 in place of 6";
  EXPECT_EQ(row_taken_otherwise(wide, one_row({1, 3.5, 0, 3}), [](int64_t) { return int64_t{0}; }), -1) << "all are taken";
}

TEST(RowTakenOtherwise, BreaksTiesByTheSmallerId) {
  EXPECT_EQ(row_taken_otherwise(one_row({1, 2, 0, 2}), one_row({1, 2, 0, 2 + 1e-9}), &two), -1);
  EXPECT_EQ(row_taken_otherwise(one_row({1, 2, 0, 2}), one_row({1, 2, 0, 2 - 1e-9}), &two), 7);
}

// A real prefix whose bits part from the emulated run's: another order of its sums, or something else?

using support::FakeRun;
using support::FakeStep;
using support::tensor_of;

constexpr int64_t kBandSteps = 6;

FakeRun bare() {
  FakeRun run;
  run.steps = support::steps_up_to(kBandSteps);
  run.level = TraceLevel::full;
  return run;
}

/// Reduced gradients are the means of the ranks' own, added in that order; ranks that it lacks are left out.
void reduce_in_order(FakeStep& it, const std::vector<int>& order) {
  std::vector<FakeStep> ranks;
  for (int rank = 0; rank < it.world_size; ++rank) ranks.push_back(support::fake_step(bare(), it.step, rank));
  for (auto& [name, reduced] : it.reduced_gradients) {
    std::ranges::fill(reduced, 0.0F);
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      for (const int rank : order) reduced[i] += tensor_of(ranks[static_cast<std::size_t>(rank)].local_gradients, name)[i] / 3.0F;
    }
  }
}

FakeRun run_in_order(const std::vector<int>& order) {
  FakeRun run = bare();
  run.fault = [order](FakeStep& it) { reduce_in_order(it, order); };
  return run;
}

class Band : public testing::Test {
 protected:
  Certification hold(const FakeRun& emulated, const FakeRun& real) {
    support::write_fake_run(folder_ / "forced", emulated);
    support::write_fake_run(folder_ / "real", real);
    return hold_to_band({folder_ / "real", folder_ / "forced", nullptr, kBandSteps});
  }
  const TempFolder folder_;
};

TEST_F(Band, HoldsSumsThatAreAddedInAnotherOrder) {
  const Certification result = hold(run_in_order({0, 1, 2}), run_in_order({2, 0, 1}));
  EXPECT_TRUE(certify(folder_ / "forced", folder_ / "real", kBandSteps).divergence) << "bits part";
  EXPECT_FALSE(result.divergence) << result.divergence->sentence;
  EXPECT_EQ(result.steps, kBandSteps);
  EXPECT_EQ(result.certify, kByBand);
  EXPECT_GT(result.band_used, 0);
  EXPECT_LE(result.band_used, 1);
}

TEST_F(Band, NamesTheRankWhosePartIsMissing) {
  FakeRun real = bare();
  real.fault = [](FakeStep& it) { reduce_in_order(it, it.step < 2 ? std::vector{2, 1, 0} : std::vector{2, 0}); };
  const Certification result = hold(run_in_order({0, 1, 2}), real);
  EXPECT_EQ(result.steps, 2);
  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->step, 2);
  EXPECT_EQ(result.divergence->phase, "reduced gradients");
  EXPECT_EQ(result.divergence->rank, 1);
  EXPECT_THAT(result.divergence->sentence, HasSubstr("rank 1's is missing"));
}

TEST_F(Band, EndsWhereNoOrderOfSumsExplainsADifference) {
  const auto gather = [](FakeStep& it, uint64_t out) {
    it.collectives.push_back({"all_gather", "", "data", "loss.candidates", -1, DType::float32, {8},
                              static_cast<uint64_t>(it.rank), out});
  };
  struct Case {
    const char* what;
    std::function<void(FakeStep&)> in_both, in_real;
    int64_t steps;
    const char *phase, *where;
  };
  const std::vector<Case> cases = {
      {"more than a sum of rounded parts", [](FakeStep& it) { reduce_in_order(it, {0, 1, 2}); },
       [](FakeStep& it) { if (it.step == 4) tensor_of(it.reduced_gradients, "head.weight")[3] *= 1.00002F; },
       4, "reduced gradients", "head.weight"},
      {"what is moved otherwise",
       [&](FakeStep& it) { reduce_in_order(it, {0, 1, 2}), gather(it, 99); },
       [](FakeStep& it) {
         reduce_in_order(it, {2, 1, 0});
         if (it.step == 3) it.collectives.back().hash_out += 7;
       },
       3, "collective", "all_gather loss.candidates"},
      {"what is exact", [](FakeStep& it) { reduce_in_order(it, {0, 1, 2}); },
       [](FakeStep& it) { if (it.step == 1 && it.rank == 2) it.samples[0] += 1; }, 1, "samples", "samples"},
      {"beside a fault that is planted in both", [](FakeStep& it) { reduce_in_order(it, {0, 2}); },
       [](FakeStep& it) { if (it.step == 3) tensor_of(it.reduced_gradients, "head.weight")[3] += 1000; },
       3, "reduced gradients", "head.weight"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    FakeRun emulated = bare(), real = bare();
    emulated.fault = each.in_both;
    real.fault = [&](FakeStep& it) { each.in_both(it), each.in_real(it); };
    const Certification result = hold(emulated, real);
    ASSERT_TRUE(result.divergence);
    const Divergence& it = *result.divergence;
    EXPECT_EQ(std::tuple(result.steps, it.step, it.phase, it.where),
              std::tuple(each.steps, each.steps, each.phase, each.where)) << it.sentence;
  }
}

TEST_F(Band, TakesWhatIsPlantedInBothForNoDifference) {
  const Certification result = hold(run_in_order({0, 2}), run_in_order({2, 0}));
  EXPECT_FALSE(result.divergence) << result.divergence->sentence;
  EXPECT_EQ(result.steps, kBandSteps);
}

TEST_F(Band, CountsTheStepsOfAPrefixThatEnds) {
  FakeRun real = run_in_order({2, 1, 0});
  real.steps = support::steps_up_to(4);
  EXPECT_EQ(hold(run_in_order({0, 1, 2}), real).steps, 4);
}

TEST_F(Band, RefusesRunsThatAreNotOfOnePrefix) {
  FakeRun other = run_in_order({0, 1, 2});
  other.steps = {1, 2, 3};
  EXPECT_THROW(hold(other, run_in_order({0, 1, 2})), TraceError);
  FakeRun more = bare();
  more.world_size = 4;
  EXPECT_THROW(hold(more, run_in_order({0, 1, 2})), TraceError);
}

using Values = std::vector<float>;

Record tensor(Phase phase, const std::string& name, const Values& values) {
  Record record;
  record.phase = phase;
  record.name = name;
  record.shape = {std::ssize(values)};
  record.payload.resize(values.size() * sizeof(float));
  std::memcpy(record.payload.data(), values.data(), record.payload.size());
  return record;
}

StepOfRun step_of(int64_t step, const Values& parameter, const Values& average) {
  StepOfRun made;
  made.step = step;
  made.ranks.push_back({step, {tensor(Phase::parameters, "w", parameter)}});
  if (!average.empty()) made.ranks[0].records.push_back(tensor(Phase::averaged_weights, "w", average));
  return made;
}

Values mixed(const Values& average, const Values& parameter, double decay) {
  Values made;
  for (std::size_t i = 0; i < average.size(); ++i) made.push_back(static_cast<float>(decay * average[i] + (1 - decay) * parameter[i]));
  return made;
}

/// As a run has it: a step and the one before.
std::optional<AverageStep> fitted(const StepOfRun& before, const StepOfRun& step) {
  return average_step({step, &before});
}

std::optional<Difference> difference(const std::optional<StepOfRun>& before_a, const StepOfRun& a, const std::optional<StepOfRun>& before_b, const StepOfRun& b) {
  return averages_difference({a, before_a ? &*before_a : nullptr}, {b, before_b ? &*before_b : nullptr});
}

const Values kOld{0.3F, -0.7F, 1.1F}, kBefore{0.5F, -0.5F, 0.9F}, kNow{0.8F, 0.1F, 0.7F};

TEST(AverageStep, TellsTheDecayThatFitsAndParametersBeforeTheUpdateFromThoseAfterIt) {
  for (const bool before : {false, true}) {
    for (const double decay : {0.0, 0.9, 0.99}) {
      const auto found = fitted(step_of(3, kBefore, kOld), step_of(4, kNow, mixed(kOld, before ? kBefore : kNow, decay)));
      ASSERT_TRUE(found);
      EXPECT_NEAR(found->decay, decay, 1e-6);
      EXPECT_LE(found->residual, 1);
      EXPECT_EQ(found->before, before);
    }
  }
}

TEST(AverageStep, BeginsWithACopyOfTheParametersWhereNobodyRecordedAnother) {
  const auto first = fitted(step_of(-1, kBefore, {}), step_of(0, kNow, mixed(kBefore, kNow, 0.9)));
  ASSERT_TRUE(first);
  EXPECT_NEAR(first->decay, 0.9, 1e-6);
  EXPECT_FALSE(fitted(step_of(2, kBefore, {}), step_of(3, kNow, mixed(kBefore, kNow, 0.9)))) << "a later one is not known";
}

TEST(AverageStep, IsNothingWhereNothingMovedOrNoAverageWasKept) {
  EXPECT_FALSE(fitted(step_of(3, kNow, kNow), step_of(4, kNow, kNow)));
  EXPECT_FALSE(fitted(step_of(3, kBefore, kOld), step_of(4, kNow, {})));
}

TEST(AveragesDifference, IsNoneWhereBothFollowTheirOwnParametersAlike) {
  const Values other{2.5F, -1.5F, 0.25F};  // of run B, whose parameters rounding has taken elsewhere
  const StepOfRun before_a = step_of(3, kBefore, kOld), a = step_of(4, kNow, mixed(kOld, kNow, 0.9)),
                  b = step_of(4, other, mixed(kOld, other, 0.9));
  EXPECT_FALSE(difference(before_a, a, before_a, b));
}

TEST(AveragesDifference, AnotherDecayParametersOfBeforeTheUpdateAndWhatIsNoAverageAreTold) {
  const StepOfRun before = step_of(3, kBefore, kOld), a = step_of(4, kNow, mixed(kOld, kNow, 0.9));
  for (const auto& [average, told] : {std::pair(mixed(kOld, kNow, 0.8), "0.8 times the old average"),
                                      {mixed(kOld, kBefore, 0.9), "made of the parameters before the update"},
                                      {Values{9, 8, -7}, "times as far from that as rounding goes"}}) {
    const auto found = difference(before, a, before, step_of(4, kNow, average));
    ASSERT_TRUE(found) << told;
    EXPECT_EQ(std::tuple(found->phase, found->divergence.where, found->divergence.kind),
              std::tuple(Phase::averaged_weights, "w", DivergenceKind::update));
    EXPECT_THAT(found->divergence.expected, HasSubstr("0.9 times the old average"));
    EXPECT_THAT(found->divergence.actual, HasSubstr(told));
  }
}

TEST(AveragesDifference, IsNoneWhereTheReferencesFollowNoRuleOrAStepLiesBetween) {
  const StepOfRun before = step_of(3, kBefore, kOld), odd = step_of(4, kNow, {9, 8, -7}), b = step_of(4, kNow, mixed(kOld, kNow, 0.8)),
                  a = step_of(4, kNow, mixed(kOld, kNow, 0.9)), earlier = step_of(2, kBefore, kOld);
  EXPECT_FALSE(difference(before, odd, before, b));
  EXPECT_FALSE(difference(earlier, a, before, b));
  EXPECT_FALSE(difference(before, a, earlier, b));
  EXPECT_FALSE(difference(std::nullopt, a, before, b));
}

}  // namespace
}  // namespace lockstep
