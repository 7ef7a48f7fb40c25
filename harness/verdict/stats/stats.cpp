#include "harness/verdict/stats/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <map>
#include <stdexcept>

namespace lockstep {

double student_quantile(double probability, int n) {
  // Interim analyses ask for the same few again and again.
  thread_local std::map<std::pair<int, double>, double> known;
  const auto [at, is_new] = known.try_emplace({n, probability}, 0.0);
  if (is_new) at->second = boost::math::quantile(boost::math::students_t(n - 1), probability);
  return at->second;
}

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
