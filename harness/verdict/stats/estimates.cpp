#include "harness/verdict/stats/estimates.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>

#include "harness/base/numbers.h"

namespace lockstep {
namespace {

constexpr uint64_t kDrawKey = 0x6c6f636b73746570;  // "lockstep"

std::size_t cut_off(std::size_t n, Middle middle) { return middle == Middle::mean ? 0 : n / 4; }

struct MiddleEstimate {
  double value = 0, standard_error = 0;
};

/// Expects values in ascending order.
MiddleEstimate estimate_of(std::span<const double> sorted, Middle middle) {
  const std::size_t n = sorted.size(), g = cut_off(n, middle), h = n - 2 * g;
  double sum = 0;
  for (std::size_t i = g; i < n - g; ++i) sum += sorted[i];
  MiddleEstimate estimate{sum / static_cast<double>(h), 0};
  // Winsorised: what was cut off counts as its neighbour that was not.
  const double ends = static_cast<double>(g) * (sorted[g] + sorted[n - 1 - g]);
  const double centre = (sum + ends) / static_cast<double>(n);
  double squares = static_cast<double>(g) * ((sorted[g] - centre) * (sorted[g] - centre) +
                                             (sorted[n - 1 - g] - centre) * (sorted[n - 1 - g] - centre));
  for (std::size_t i = g; i < n - g; ++i) squares += (sorted[i] - centre) * (sorted[i] - centre);
  if (h > 1) estimate.standard_error = std::sqrt(squares / static_cast<double>(h * (h - 1)));
  return estimate;
}

std::vector<double> sorted_copy(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted;
}

/// `use(sorted resample)`, kResamples times.
template <typename F>
void resample(std::span<const double> values, F use) {
  const KeyedDraws draws(kDrawKey);
  std::vector<double> drawn(values.size());
  uint64_t counter = 0;
  for (int b = 0; b < kResamples; ++b) {
    for (double& value : drawn) value = values[draws.below(counter++, static_cast<uint32_t>(values.size()))];
    std::ranges::sort(drawn);
    use(std::span<const double>(drawn));
  }
}

/// Interpolates linearly between neighbours; `sorted` may hold infinities.
double percentile(const std::vector<double>& sorted, double share) {
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double low = sorted[below], high = sorted[std::min(below + 1, sorted.size() - 1)];
  const double part = place - static_cast<double>(below);
  return part == 0 || low == high || std::isinf(low) ? low : low + part * (high - low);
}

/// Sum of cubes of (mean - x) over 6 times the sum of squares to the power 3/2, x the estimates without one
/// value each.
double acceleration(std::span<const double> sorted, Middle middle) {
  std::vector<double> without(sorted.size());
  std::vector<double> rest;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    rest.assign(sorted.begin(), sorted.end());
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    without[i] = estimate_of(rest, middle).value;
  }
  const double mean = std::accumulate(without.begin(), without.end(), 0.0) / double(without.size());
  double squares = 0, cubes = 0;
  for (double x : without) {
    squares += (mean - x) * (mean - x);
    cubes += (mean - x) * (mean - x) * (mean - x);
  }
  return squares > 0 ? cubes / (6.0 * std::pow(squares, 1.5)) : 0.0;
}

}  // namespace

double interquartile_mean(std::span<const double> values) {
  return estimate_of(sorted_copy(values), Middle::interquartile_mean).value;
}

Interval median_interval(std::span<const double> values, double level) {
  const std::vector<double> sorted = sorted_copy(values);
  const std::size_t n = sorted.size();
  const boost::math::binomial_distribution<> heads(static_cast<double>(n), 0.5);
  const auto missed = [&](std::size_t k) {
    return 2.0 * boost::math::cdf(heads, static_cast<double>(k - 1));
  };
  std::size_t k = 1;
  while (2 * (k + 1) <= n && missed(k + 1) <= 1.0 - level) ++k;
  return {sorted[k - 1], sorted[n - k], std::max(0.0, 1.0 - missed(k))};
}

Interval bca_interval(std::span<const double> values, Middle middle, double level) {
  const boost::math::normal normal;
  const std::vector<double> sorted = sorted_copy(values);
  const double estimate = estimate_of(sorted, middle).value;
  std::vector<double> resampled;
  double below = 0;
  resample(sorted, [&](std::span<const double> drawn) {
    const double value = estimate_of(drawn, middle).value;
    below += value < estimate ? 1.0 : value == estimate ? 0.5 : 0.0;
    resampled.push_back(value);
  });
  std::ranges::sort(resampled);
  const double share = std::clamp(below / kResamples, 0.5 / kResamples, 1.0 - 0.5 / kResamples);
  const double z0 = boost::math::quantile(normal, share), a = acceleration(sorted, middle);
  const auto end = [&](double probability) {
    const double z = z0 + boost::math::quantile(normal, probability);
    return percentile(resampled, boost::math::cdf(normal, z0 + z / (1.0 - a * z)));
  };
  return {end((1.0 - level) / 2.0), end((1.0 + level) / 2.0), level};
}

Interval studentised_interval(std::span<const double> values, Middle middle, double level) {
  const std::vector<double> sorted = sorted_copy(values);
  const MiddleEstimate estimate = estimate_of(sorted, middle);
  // A middle half without spread between ends that differ says nothing of how sure it is.
  if (estimate.standard_error == 0) return {-kInfinity, kInfinity, level};
  std::vector<double> resampled;
  resample(sorted, [&](std::span<const double> drawn) {
    const MiddleEstimate own = estimate_of(drawn, middle);
    const double off = own.value - estimate.value;
    // Without spread t has no size, only a side.
    resampled.push_back(own.standard_error > 0 ? off / own.standard_error
                        : off == 0             ? 0.0
                                               : std::copysign(kInfinity, off));
  });
  std::ranges::sort(resampled);
  const double t_low = percentile(resampled, (1.0 - level) / 2.0);
  const double t_high = percentile(resampled, (1.0 + level) / 2.0);
  return {estimate.value - t_high * estimate.standard_error, estimate.value - t_low * estimate.standard_error,
          level};
}

std::vector<Estimate> estimate_middle(std::span<const double> differences, double alpha) {
  const PairedSummary summary = summarize_differences(differences);
  const int n = summary.n;
  const double level = 1.0 - alpha;
  std::vector<Estimate> estimates;
  if (n < 2) return estimates;
  const auto add = [&](const char* what, const char* method, double value, const Interval& interval) {
    if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) return;
    estimates.push_back({what, method, value, interval});
  };
  add("mean", "Student t", summary.mean, *student_interval(summary, level));
  const bool flat =
      summary.sd == 0;  // Then all estimates are that one value, and resampling adds its rounding.
  const Interval point{summary.mean, summary.mean, level};
  if (n >= kBcaPairs) {
    add("mean", "BCa bootstrap", summary.mean, flat ? point : bca_interval(differences, Middle::mean, level));
  }
  add("median", "order statistics", median_of_sorted(sorted_copy(differences)),
      median_interval(differences, level));
  if (n < kIqmPairs) return estimates;
  const double iqm = flat ? summary.mean : interquartile_mean(differences);
  constexpr Middle kMiddle = Middle::interquartile_mean;
  if (n >= kBcaPairs) {
    add("interquartile mean", "BCa bootstrap", iqm, flat ? point : bca_interval(differences, kMiddle, level));
  } else {
    add("interquartile mean", "studentised bootstrap", iqm,
        flat ? point : studentised_interval(differences, kMiddle, level));
  }
  return estimates;
}

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
