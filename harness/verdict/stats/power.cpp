#include "harness/verdict/stats/power.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <stdexcept>

#include "harness/base/numbers.h"
#include "harness/verdict/stats/estimates.h"
#include "harness/verdict/stats/tests.h"

namespace lockstep {
namespace {

using Binomial = boost::math::binomial_distribution<>;

double normal_cdf(double z) { return boost::math::cdf(boost::math::normal(), z); }

/// Expectation of f(s / sigma) over s / sigma in [0, most], s the standard deviation of n normal values.
/// With x = s / sigma * sqrt(v), v = n - 1, x is chi with v degrees of freedom. Its density is narrow
/// (standard deviation below 0.71 for any v), so the integral runs over 10 either side of sqrt(v): what lies
/// outside is below 1e-20.
template <typename F>
double expect_over_spread(int n, double most, F f) {
  const double v = n - 1;
  const double low = std::max(0.0, std::sqrt(v) - 10.0);
  const double high = std::min(most * std::sqrt(v), std::sqrt(v) + 10.0);
  if (high <= low) return 0.0;
  const double log_scale = (1.0 - v / 2.0) * std::log(2.0) - boost::math::lgamma(v / 2.0);
  auto integrand = [&](double x) {
    if (x <= 0.0) return v == 1.0 ? std::exp(log_scale) * f(0.0) : 0.0;
    return std::exp(log_scale + (v - 1.0) * std::log(x) - x * x / 2.0) * f(x / std::sqrt(v));
  };
  const double sum =
      boost::math::quadrature::gauss_kronrod<double, 31>::integrate(integrand, low, high, 12, 1e-10);
  return std::clamp(sum, 0.0, 1.0);
}

void check_question(const PowerQuestion& q) {
  if (!std::isfinite(q.sd) || q.sd < 0) throw std::invalid_argument(fmt::format("power: the sd is {}", q.sd));
  if (!std::isfinite(q.margin) || q.margin <= 0) {
    throw std::invalid_argument(fmt::format("power: the margin is {}", q.margin));
  }
  if (!(q.alpha > 0 && q.alpha < 0.5))
    throw std::invalid_argument(fmt::format("power: alpha is {}", q.alpha));
  if (!std::isfinite(q.true_difference)) {
    throw std::invalid_argument(fmt::format("power: the true difference is {}", q.true_difference));
  }
}

/// P(a difference lies at or above the margin), P(at or below minus the margin).
struct Beyond {
  double above = 0, below = 0;
};
Beyond beyond_margin(const PowerQuestion& q) {
  if (q.sd == 0) return {q.true_difference >= q.margin ? 1.0 : 0.0, q.true_difference <= -q.margin ? 1.0 : 0.0};
  return {normal_cdf((q.true_difference - q.margin) / q.sd), normal_cdf((-q.margin - q.true_difference) / q.sd)};
}

double equivalence_by_sign(const PowerQuestion& q) {
  const int allowed = q.n - sign_count(q.n, q.alpha);
  const auto [above, below] = beyond_margin(q);
  if (allowed < 0 || above >= 1) return 0;
  const Binomial beyond_above(q.n, above);
  double sum = 0;
  for (int a = 0; a <= allowed; ++a) {
    const Binomial beyond_below(q.n - a, std::min(1.0, below / (1 - above)));
    sum += boost::math::pdf(beyond_above, a) * boost::math::cdf(beyond_below, allowed);
  }
  return std::clamp(sum, 0.0, 1.0);
}

double divergence_by_sign(const PowerQuestion& q) {
  const int count = sign_count(q.n, q.alpha / 2);
  if (count > q.n) return 0;
  const auto [above, below] = beyond_margin(q);
  const auto reached = [&](double p) {
    return boost::math::cdf(boost::math::complement(Binomial(q.n, p), count - 1));
  };
  return std::min(1.0, reached(above) + reached(below));
}

}  // namespace

double equivalence_power(const PowerQuestion& q) {
  check_question(q);
  if (q.n < 2) return 0.0;
  if (q.test == OutcomeTest::sign) return equivalence_by_sign(q);
  if (q.sd == 0) return std::abs(q.true_difference) < q.margin ? 1.0 : 0.0;
  const double t = student_quantile(1.0 - q.alpha, q.n);
  const double unit = std::sqrt(double(q.n)) / q.sd;
  const double m = q.margin * unit, d = q.true_difference * unit;
  return expect_over_spread(q.n, m / t, [=](double s) {
    return std::max(0.0, normal_cdf(m - d - t * s) - normal_cdf(-m - d + t * s));
  });
}

double divergence_power(const PowerQuestion& q) {
  check_question(q);
  if (q.n < 2) return 0.0;
  if (q.test == OutcomeTest::sign) return divergence_by_sign(q);
  if (q.sd == 0) return std::abs(q.true_difference) > q.margin ? 1.0 : 0.0;
  const double t = student_quantile(1.0 - q.alpha / 2.0, q.n);
  const double unit = std::sqrt(double(q.n)) / q.sd;
  const double m = q.margin * unit, d = q.true_difference * unit;
  constexpr double kNoLimit = 1e9;
  return expect_over_spread(q.n, kNoLimit,
                            [=](double s) { return normal_cdf(d - m - t * s) + normal_cdf(-d - m - t * s); });
}

int seeds_needed(const PowerQuestion& question) {
  const bool inside = std::abs(question.true_difference) < question.margin;
  auto enough = [&](int n) {
    PowerQuestion q = question;
    q.n = n;
    return (inside ? equivalence_power(q) : divergence_power(q)) >= kWantedPower;
  };
  // Power rises with n: double n until it suffices, then halve the gap that is left.
  int low = 1, high = 2;
  while (!enough(high)) {
    if (high == kMostSeeds) return kMostSeeds;
    low = high;
    high = std::min(kMostSeeds, high * 2);
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

double detectable_difference(PowerQuestion q) {
  constexpr int kMostDoublings = 40, kHalvings = 40;
  if (q.n < 2 || !std::isfinite(q.sd)) return kInfinity;
  if (q.sd == 0) return 0;
  const auto enough = [&q](double difference) {
    q.true_difference = difference;
    return divergence_power(q) >= kWantedPower;
  };
  double low = q.margin, step = q.sd;
  for (int doublings = 0; !enough(q.margin + step); ++doublings) {
    if (doublings == kMostDoublings) return kInfinity;
    low = q.margin + step;
    step *= 2;
  }
  double high = q.margin + step;
  for (int i = 0; i < kHalvings && high - low > 1e-9 * high; ++i) {
    const double middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace lockstep
