#pragma once
// What the tests do with paired differences that are not normal: where one tail is long, and where a seed
// collapses now and then.

#include <string>
#include <vector>

#include "harness/verdict/questions/calibration/inputs.h"
#include "harness/verdict/stats/sequential.h"

namespace lockstep {

/// Comparisons of one shape, one middle at the margin, one number of pairs (or looks) and one test.
struct ShapeTrial {
  enum class Shape { normal, log_normal, collapse };
  Shape shape = Shape::normal;
  bool median_at_margin = false;  ///< else the mean lies there; of normal differences both do
  OutcomeTest test = OutcomeTest::t;
  int pairs = 0;  ///< 0: looks

  int64_t of = 0, equivalent = 0, divergent = 0;
  int64_t unwarned = 0;  ///< called equivalent although their skewness gave no warning
  int64_t warned = 0;    ///< of all

  /// Does the test promise to keep alpha there? t does of normal differences, the sign test of any whose median
  /// lies at the margin.
  bool promised() const;
  /// "log-normal", "one seed in 20 collapses".
  std::string shape_words() const;
  /// "10 pairs, log-normal, mean at the margin".
  std::string design(const SeedsAuto& looks) const;
};

/// All that are tried, for these numbers of pairs and for looks. Differences have a standard deviation of
/// kShapeSd margins: log-normal ones (of sigma 1) with their long tail beyond the margin, or normal ones of
/// which one seed in 20 loses 20 margins, so that the mean of healthy seeds that do not differ at all lies at
/// the margin.
std::vector<ShapeTrial> shape_trials(const std::vector<int>& pairs);
inline constexpr double kShapeSd = 0.3;

/// Draws inputs.config.draws comparisons and counts.
void run_trial(const CalibrationInputs& inputs, const DecisionRule& rule, ShapeTrial& trial);

}  // namespace lockstep
