// What float64 twins allow a difference, and rows whose columns rounding chooses.

#include "harness/verdict/compare/forced/twins.h"

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
