#include "harness/stats/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <map>
#include <stdexcept>

namespace lockstep {
namespace {

double student_quantile(double probability, int n) {
  // A calibration asks for the same few a million times.
  thread_local std::map<std::pair<int, double>, double> known;
  const auto [at, is_new] = known.try_emplace({n, probability}, 0.0);
  if (is_new) at->second = boost::math::quantile(boost::math::students_t(n - 1), probability);
  return at->second;
}

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

}  // namespace

PairedSummary summarize_differences(std::span<const double> differences) {
  if (differences.empty()) throw std::invalid_argument("no differences to summarize");
  for (std::size_t i = 0; i < differences.size(); ++i) {
    if (!std::isfinite(differences[i])) {
      throw std::invalid_argument(
          fmt::format("difference {} of {} is {}", i + 1, differences.size(), differences[i]));
    }
  }
  PairedSummary summary;
  summary.n = static_cast<int>(differences.size());
  // Equal values have sd 0 exactly; dividing their sum by n could round and leave a spread that is not there.
  if (std::ranges::all_of(differences, [&](double d) { return d == differences.front(); })) {
    summary.mean = differences.front();
    return summary;
  }
  const double n = summary.n;
  double mean = 0;
  for (double d : differences) mean += d / n;
  double rest = 0;
  for (double d : differences) rest += d - mean;
  summary.mean = mean + rest / n;
  double squares = 0;
  for (double d : differences) squares += (d - summary.mean) * (d - summary.mean);
  summary.sd = std::sqrt(squares / (n - 1.0));
  return summary;
}

std::optional<Interval> student_interval(const PairedSummary& summary, double level) {
  if (!(level > 0 && level < 1)) throw std::invalid_argument(fmt::format("interval: the level is {}", level));
  if (summary.n < 2) return std::nullopt;
  if (summary.sd == 0) return Interval{summary.mean, summary.mean, level};
  const double half =
      student_quantile(0.5 + level / 2.0, summary.n) * summary.sd / std::sqrt(double(summary.n));
  return Interval{summary.mean - half, summary.mean + half, level};
}

VerdictKind decide_outcome(const PairedSummary& summary, const Primary& primary) {
  const auto narrow = student_interval(summary, 1.0 - 2.0 * primary.alpha);
  const auto wide = student_interval(summary, 1.0 - primary.alpha);
  if (!narrow || !wide) return VerdictKind::inconclusive;
  if (narrow->low > -primary.margin && narrow->high < primary.margin) return VerdictKind::equivalent;
  if (wide->low > primary.margin || wide->high < -primary.margin) return VerdictKind::divergent;
  return VerdictKind::inconclusive;
}

double equivalence_power(const PowerQuestion& q) {
  check_question(q);
  if (q.n < 2) return 0.0;
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

double sd_upper_bound(const PairedSummary& summary, double level) {
  if (!(level > 0 && level < 1)) throw std::invalid_argument(fmt::format("sd bound: the level is {}", level));
  if (summary.n < 2) return std::numeric_limits<double>::infinity();
  if (summary.sd == 0) return 0.0;
  const double v = summary.n - 1;
  return summary.sd * std::sqrt(v / boost::math::quantile(boost::math::chi_squared(v), 1.0 - level));
}

PValues p_values_of(const PairedSummary& summary, double margin) {
  if (summary.n < 2) return {};
  if (summary.sd == 0) {
    return {std::abs(summary.mean) < margin ? 0.0 : 1.0, summary.mean == 0 ? 1.0 : 0.0};
  }
  const boost::math::students_t t(summary.n - 1);
  const double se = summary.sd / std::sqrt(double(summary.n));
  const double above_low = boost::math::cdf(boost::math::complement(t, (summary.mean + margin) / se));
  const double below_high = boost::math::cdf(t, (summary.mean - margin) / se);
  const double beyond = boost::math::cdf(boost::math::complement(t, std::abs(summary.mean) / se));
  return {std::max(above_low, below_high), std::min(1.0, 2.0 * beyond)};
}

std::vector<double> holm_adjusted(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return p[i]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, p[order[rank]] * static_cast<double>(p.size() - rank));
    adjusted[order[rank]] = std::min(1.0, largest);
  }
  return adjusted;
}

}  // namespace lockstep
