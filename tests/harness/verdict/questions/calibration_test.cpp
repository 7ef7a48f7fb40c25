#include "harness/verdict/questions/calibration/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/verdict/questions/judge.h"
#include "harness/verdict/questions/summary.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/results/results.h"
#include "harness/verdict/stats/stats.h"
#include "tests/support/json_schema.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

CalibrationInputs inputs(int64_t draws = 4000) {
  CalibrationInputs in;
  in.primary = {"accuracy_24", 0.03, 0.05, 0};
  in.config = {draws, 200, 10, 1};
  in.looks = {false, 5, 5, 20, 0};
  for (int i = 0; i < 100; ++i)
    in.pool.push_back(0.6 + 0.01 * std::sin(i * 12.9898) + 0.01 * std::cos(i * 78.233));
  in.jobs = 2;
  return in;
}

/// The decision by z where it must be by t: few pairs are trusted too much.
VerdictKind by_normal(std::span<const double> differences, const Primary& primary) {
  if (primary.test == OutcomeTest::sign) return decide(differences, primary);
  const PairedSummary summary = summarize_differences(differences);
  const auto bound = [](double tail) {
    return boost::math::quantile(boost::math::complement(boost::math::normal(), tail));
  };
  const double error = summary.sd / std::sqrt(summary.n);
  const double narrow = bound(primary.alpha) * error, wide = bound(primary.alpha / 2) * error;
  if (summary.mean - narrow > -primary.margin && summary.mean + narrow < primary.margin)
    return VerdictKind::equivalent;
  if (std::abs(summary.mean) - wide > primary.margin) return VerdictKind::divergent;
  return VerdictKind::inconclusive;
}

VerdictKind at_twice_alpha(std::span<const double> differences, Primary primary) {
  primary.alpha *= 2;
  return decide(differences, primary);
}

/// A sign test that is content with seven pairs in ten.
VerdictKind by_rough_sign(std::span<const double> differences, const Primary& primary) {
  if (primary.test == OutcomeTest::t) return decide(differences, primary);
  const auto inside = std::ranges::count_if(differences, [&](double d) { return d < primary.margin; });
  const auto above = std::ranges::count_if(differences, [&](double d) { return d > -primary.margin; });
  const double wanted = 0.7 * static_cast<double>(differences.size());
  return inside >= wanted && above >= wanted ? VerdictKind::equivalent : VerdictKind::inconclusive;
}

/// Whoever looks often at the full level.
VerdictKind without_spending(std::span<const double> differences, Primary primary) {
  primary.alpha = 0.05;
  return decide(differences, primary);
}

bool falls_short(const Calibration& calibration, const std::string& what) {
  return std::any_of(calibration.rates.begin(), calibration.rates.end(), [&](const DetectionRate& rate) {
    return !rate.enough && rate.what.find(what) != std::string::npos;
  });
}

TEST(Calibration, TheRightRuleKeepsItsPromises) {
  const Calibration calibration = calibrate(inputs());
  for (const DetectionRate& rate : calibration.rates)
    EXPECT_TRUE(rate.enough) << rate.what << " " << rate.hits;
  EXPECT_TRUE(calibration.passed) << calibration_sentence(calibration);
  EXPECT_EQ(calibration.pool_runs, 100);
  EXPECT_GT(calibration.pool_sd, 0);
  EXPECT_THAT(calibration_sentence(calibration), HasSubstr("meet their stated rates"));
}

TEST(Calibration, AZInPlaceOfATIsCaughtAtFivePairs) {
  const Calibration calibration = calibrate(inputs(), by_normal);
  EXPECT_FALSE(calibration.passed);
  EXPECT_TRUE(falls_short(calibration, "5 pairs, sd 0.3 margins: equivalent at +margin"));
  EXPECT_THAT(calibration_sentence(calibration), HasSubstr("do not meet their stated rates"));
}

TEST(Calibration, ADoubledAlphaIsCaught) {
  const Calibration calibration = calibrate(inputs(), at_twice_alpha);
  EXPECT_FALSE(calibration.passed);
  EXPECT_TRUE(falls_short(calibration, "20 pairs, sd 0.3 margins: equivalent at -margin"));
}

TEST(Calibration, LooksThatSpendNoAlphaAreCaught) {
  const Calibration calibration = calibrate(inputs(), without_spending);
  EXPECT_FALSE(calibration.passed);
  EXPECT_TRUE(falls_short(calibration, "interim analyses at 5 to 20 pairs"));
  EXPECT_FALSE(falls_short(calibration, "20 pairs, sd 0.3")) << "with one look there is nothing to spend";
}

const ShapeRate& shape_of(const Calibration& calibration, const std::string& shape, OutcomeTest test,
                          const std::string& at) {
  const auto found = std::ranges::find_if(calibration.shapes, [&](const ShapeRate& rate) {
    return rate.shape == shape && rate.test == test && rate.at_margin == at;
  });
  EXPECT_NE(found, calibration.shapes.end()) << shape;
  return *found;
}

TEST(Calibration, ASignTestThatAsksTooLittleIsCaughtOnEveryShape) {
  const Calibration calibration = calibrate(inputs(), by_rough_sign);
  EXPECT_FALSE(calibration.passed);
  EXPECT_TRUE(falls_short(calibration, "10 pairs, normal: equivalent by sign"));
  EXPECT_TRUE(falls_short(calibration, "10 pairs, log-normal, median at the margin: equivalent by sign"));
  EXPECT_TRUE(falls_short(calibration, "10 pairs, one seed in 20 collapses, median at the margin: equivalent by "
                                       "sign"));
  EXPECT_FALSE(falls_short(calibration, "equivalent by t"));
}

TEST(Calibration, SaysWhatBothTestsDoWithSkewedAndCollapsingDraws) {
  const Calibration calibration = calibrate(inputs());
  ASSERT_EQ(calibration.shapes.size(), 6u);
  const std::string collapse = "one seed in 20 collapses";
  const ShapeRate &skewed = shape_of(calibration, "log-normal", OutcomeTest::t, "mean"),
                  &collapsing = shape_of(calibration, collapse, OutcomeTest::t, "mean");
  EXPECT_NEAR(skewed.equivalent, 0.2, 0.05);
  EXPECT_GT(skewed.looks, 0.15);
  // Five pairs without a collapse among them have a chance of 0.95^5.
  EXPECT_NEAR(collapsing.equivalent, std::pow(0.95, 5), 0.03);
  EXPECT_GT(collapsing.unwarned, 0.7) << "a collapse that is not among the pairs leaves no mark";
  for (const std::string& shape : {std::string("log-normal"), collapse}) {
    const ShapeRate& kept = shape_of(calibration, shape, OutcomeTest::sign, "median");
    EXPECT_TRUE(kept.promised);
    EXPECT_LT(kept.equivalent, 0.06) << shape;
    EXPECT_LT(kept.looks, 0.06) << shape;
    const ShapeRate& lost = shape_of(calibration, shape, OutcomeTest::sign, "mean");
    EXPECT_FALSE(lost.promised) << "the median lies inside where the mean lies at the margin";
    EXPECT_GT(lost.equivalent, 0.15) << shape;
  }
  EXPECT_THAT(calibration_sentence(calibration),
              testing::AllOf(HasSubstr("The tests meet their stated rates: of normal differences"),
                             HasSubstr("The sign test states the same rate for any shape whose median is the margin"),
                             HasSubstr("Neither test states a rate for the mean of other shapes: with the mean "
                                       "at the margin t "
                                       "called equivalent up to "),
                             HasSubstr("where one seed in 20 collapses")));
}

TEST(Calibration, GivesTheSameBitsEveryTime) {
  CalibrationInputs in = inputs(500);
  const auto text = [&] {
    Results results;
    results.calibration = calibrate(in);
    return results_to_json(results);
  };
  const std::string first = text();
  in.jobs = 1;
  EXPECT_EQ(text(), first);
  in.config.draw_seed = 2;
  EXPECT_NE(text(), first);
}

TEST(Calibration, ComesBackAsItWas) {
  Results results;
  results.name = "calibration";
  results.question = "calibration";
  results.calibration = calibrate(inputs(200));
  const std::string text = results_to_json(results);
  const Results again = results_from_json(text, "results.json");
  EXPECT_EQ(results_to_json(again), text);
  ASSERT_TRUE(again.calibration);
  EXPECT_EQ(again.calibration->rates.size(), results.calibration->rates.size());
  EXPECT_THAT(
      support::schema_violations(nlohmann::json::parse(text), nlohmann::json::parse(results_schema())),
      IsEmpty());
}

TEST(Calibration, DecidesTheExitCode) {
  Results results;
  results.question = "calibration";
  CellResult pool;
  pool.scenario = "1x24";
  pool.verdict = VerdictKind::identical;
  results.cells.push_back(pool);
  results.calibration = calibrate(inputs(500));
  EXPECT_EQ(summarize_results(results).exit_code, 0);
  results.calibration = calibrate(inputs(2000), at_twice_alpha);
  EXPECT_EQ(summarize_results(results).exit_code, 1);
}

TEST(Calibration, APoolThatHasNotMeasuredTheMetricFails) {
  Matrix matrix;
  matrix.primary.metric = "accuracy_24";
  RunEvidence evidence;
  evidence.metrics["loss"] = 1;
  CellResult cell;
  EXPECT_FALSE(calibrate_runs(matrix, {&evidence}, 1, cell));
  ASSERT_TRUE(cell.failure);
  EXPECT_EQ(cell.failure->kind, FailureKind::unmeasured);
}

}  // namespace
}  // namespace lockstep
