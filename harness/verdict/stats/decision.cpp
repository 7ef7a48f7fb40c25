#include "harness/verdict/stats/decision.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "harness/base/numbers.h"
#include "harness/verdict/stats/estimates.h"
#include "harness/verdict/stats/tests.h"

namespace lockstep {
namespace {

Interval unbounded(double level) {
  return {-kInfinity, kInfinity, level};
}

Decision by_t(std::span<const double> differences, const Primary& primary) {
  const PairedSummary summary = summarize_differences(differences);
  const auto interval_at = [&](double level) { return student_interval(summary, level).value_or(unbounded(level)); };
  return {decide_outcome(summary, primary), summary.mean, interval_at(1.0 - primary.alpha),
          interval_at(1.0 - 2.0 * primary.alpha), p_values_of(summary, primary.margin)};
}

Decision by_sign(std::span<const double> differences, const Primary& primary) {
  (void)summarize_differences(differences);  // refuses what is not finite
  std::vector<double> sorted(differences.begin(), differences.end());
  std::ranges::sort(sorted);
  const auto interval_at = [&](double missed) {
    // A hair below the level that is meant: a tail that equals it must not be lost to rounding.
    const double level = 1.0 - missed * (1 + 1e-9);
    const Interval interval = median_interval(differences, level);
    return interval.level < level ? unbounded(1.0 - missed) : interval;
  };
  return {decide_by_sign(differences, primary), median_of_sorted(sorted), interval_at(primary.alpha),
          interval_at(2.0 * primary.alpha), sign_p_values(differences, primary.margin)};
}

}  // namespace

Decision decide_fully(std::span<const double> differences, const Primary& primary) {
  return primary.test == OutcomeTest::sign ? by_sign(differences, primary) : by_t(differences, primary);
}

VerdictKind decide(std::span<const double> differences, const Primary& primary) {
  if (primary.test == OutcomeTest::sign) return decide_by_sign(differences, primary);
  return decide_outcome(summarize_differences(differences), primary);
}

double p_above_zero(std::span<const double> values, OutcomeTest test) {
  if (values.size() < 2) return 1;
  const int n = static_cast<int>(values.size());
  if (test == OutcomeTest::sign)
    return sign_tail(n, static_cast<int>(std::ranges::count_if(values, [](double value) { return value > 0; })));
  const PairedSummary s = summarize_differences(values);
  if (s.sd == 0) return s.mean > 0 ? 0 : 1;
  const double t = s.mean * std::sqrt(static_cast<double>(n)) / s.sd;
  return boost::math::cdf(boost::math::complement(boost::math::students_t(n - 1), t));
}

DetectionRate detection_rate(std::string what, int64_t hits, int64_t of, double level) {
  using Binomial = boost::math::binomial_distribution<>;
  DetectionRate rate;
  rate.what = std::move(what);
  rate.hits = hits;
  rate.of = of;
  rate.asked = kNothingAsked;
  rate.interval = {0, 1, level};
  if (of > 0) {
    const double tail = (1 - level) / 2;
    const auto n = static_cast<double>(of), k = static_cast<double>(hits);
    rate.interval.low = Binomial::find_lower_bound_on_p(n, k, tail);
    rate.interval.high = Binomial::find_upper_bound_on_p(n, k, tail);
  }
  return rate;
}

}  // namespace lockstep
