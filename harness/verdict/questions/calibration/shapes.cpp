#include "harness/verdict/questions/calibration/shapes.h"

#include <fmt/format.h>

#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <numbers>
#include <utility>

#include "harness/verdict/questions/calibration/draws.h"
#include "harness/verdict/stats/skewness.h"

namespace lockstep {
namespace {

using Shape = ShapeTrial::Shape;

/// Of the collapsing shape: how often, and how many margins a seed then loses.
constexpr double kCollapses = 1.0 / 20, kLoss = 20;

/// e^x by Taylor's series of x / 256, squared 8 times: sums and products alone, so that every machine draws the
/// same bits.
double exponential(double x) {
  double term = 1, sum = 1;
  for (int k = 1; k <= 12; ++k) {
    term *= x / 256 / k;
    sum += term;
  }
  for (int i = 0; i < 8; ++i) sum *= sum;
  return sum;
}

/// One difference in margins.
double draw(const ShapeTrial& trial, CalibrationDraws& draws) {
  constexpr double kE = std::numbers::e;
  switch (trial.shape) {
    case Shape::normal:
      return 1 + kShapeSd * draws.normal();
    case Shape::log_normal: {
      // Of exp(z): mean e^0.5, variance (e - 1) e, median 1.
      const double middle = trial.median_at_margin ? 1 : std::sqrt(kE);
      return 1 + kShapeSd * (exponential(draws.normal()) - middle) / std::sqrt((kE - 1) * kE);
    }
    case Shape::collapse: {
      static const double score =
          boost::math::quantile(boost::math::normal(), (0.5 - kCollapses) / (1 - kCollapses));
      const double healthy = trial.median_at_margin ? -1 - kShapeSd * score : -1 + kCollapses * kLoss;
      const bool collapses = draws.uniform() <= kCollapses;
      return healthy + kShapeSd * draws.normal() - (collapses ? kLoss : 0);
    }
  }
  return 0;
}

}  // namespace

bool ShapeTrial::promised() const {
  return shape == Shape::normal || (test == OutcomeTest::sign && median_at_margin);
}

std::string ShapeTrial::shape_words() const {
  switch (shape) {
    case Shape::normal:
      return "normal";
    case Shape::log_normal:
      return "log-normal";
    case Shape::collapse:
      return "one seed in 20 collapses";
  }
  return "";
}

std::string ShapeTrial::design(const SeedsAuto& looks) const {
  const std::string middle = shape == Shape::normal ? ""
                             : median_at_margin     ? ", median at the margin"
                                                    : ", mean at the margin";
  return fmt::format("{}, {}{}",
                     pairs > 0 ? fmt::format("{} pairs", pairs)
                               : fmt::format("interim analyses at {} to {} pairs", looks.first, looks.most),
                     shape_words(), middle);
}

std::vector<ShapeTrial> shape_trials(const std::vector<int>& pairs) {
  std::vector<ShapeTrial> trials;
  std::vector<int> designs = pairs;
  designs.push_back(0);
  for (const int design : designs) {
    trials.push_back({Shape::normal, false, OutcomeTest::sign, design});
    for (const Shape shape : {Shape::log_normal, Shape::collapse}) {
      trials.push_back({shape, false, OutcomeTest::t, design});
      trials.push_back({shape, false, OutcomeTest::sign, design});
      trials.push_back({shape, true, OutcomeTest::sign, design});
    }
  }
  return trials;
}

void run_trial(const CalibrationInputs& inputs, const DecisionRule& rule, ShapeTrial& trial) {
  Primary primary = inputs.primary;
  primary.test = trial.test;
  std::vector<SpendingAnalysis> looks;
  if (trial.pairs == 0) looks = spending_analyses(inputs.looks, primary.alpha, trial.test);
  const auto shape = static_cast<uint64_t>(trial.shape);
  CalibrationDraws draws(inputs.config.draw_seed, DrawPurpose::shape,
                         shape * 100'000 + static_cast<uint64_t>(trial.pairs));
  std::vector<double> sample(static_cast<std::size_t>(trial.pairs > 0 ? trial.pairs : inputs.looks.most));
  for (trial.of = 0; trial.of < inputs.config.draws; ++trial.of) {
    for (double& value : sample) value = primary.margin * draw(trial, draws);
    std::span<const double> seen = sample;
    VerdictKind verdict{};
    if (trial.pairs > 0) {
      verdict = rule(seen, primary);
    } else {
      const Look last = take_interim_analyses(sample, looks, primary, rule).back();
      verdict = last.verdict;
      seen = seen.first(static_cast<std::size_t>(last.n));
    }
    trial.equivalent += verdict == VerdictKind::equivalent;
    trial.divergent += verdict == VerdictKind::divergent;
    const bool asks =
        trial.shape == Shape::normal || (trial.test == OutcomeTest::t && verdict == VerdictKind::equivalent);
    if (!asks) continue;
    const bool warned = skewness_p(seen) <= kSkewLevel;
    trial.warned += warned;
    trial.unwarned += verdict == VerdictKind::equivalent && !warned;
  }
}

}  // namespace lockstep
