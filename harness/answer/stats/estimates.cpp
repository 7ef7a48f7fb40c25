#include "harness/answer/stats/estimates.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

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

namespace {

/// Differences strictly above `bound`, and strictly below it.
struct Sides {
  int above = 0, below = 0;
};

Sides sides_of(std::span<const double> differences, double bound) {
  Sides sides;
  for (const double difference : differences) {
    sides.above += difference > bound;
    sides.below += difference < bound;
  }
  return sides;
}

}  // namespace

double sign_tail(int n, int count) {
  if (count <= 0) return 1;
  if (count > n) return 0;
  // The search for a count asks for the same few again and again.
  thread_local std::map<std::pair<int, int>, double> known;
  const auto [at, is_new] = known.try_emplace({n, count}, 0.0);
  if (is_new) {
    const boost::math::binomial_distribution<> heads(n, 0.5);
    at->second = boost::math::cdf(boost::math::complement(heads, count - 1));
  }
  return at->second;
}

int sign_count(int n, double alpha) {
  int too_few = 0, enough = n + 1;
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    (sign_tail(n, middle) <= alpha ? enough : too_few) = middle;
  }
  return enough;
}

/// `equivalent` if so many differences lie strictly below the margin, and so many strictly above minus the
/// margin, that either one-sided sign test rejects at alpha; `divergent` if so many lie strictly beyond the
/// margin on one side that it rejects at alpha / 2; else `inconclusive`, as with fewer than 5 pairs (divergent:
/// 6) at 0.05. A difference at the margin itself counts against either.
///
/// It holds for the median of independent differences of any distribution: fewer than half of the seeds may do
/// anything. The mean may lie elsewhere.
static VerdictKind decide_by_sign(std::span<const double> differences, const Primary& primary) {
  const int n = static_cast<int>(differences.size());
  const Sides high = sides_of(differences, primary.margin), low = sides_of(differences, -primary.margin);
  if (std::max(sign_tail(n, high.below), sign_tail(n, low.above)) <= primary.alpha) return VerdictKind::equivalent;
  if (sign_tail(n, std::max(high.above, low.below)) <= primary.alpha / 2) return VerdictKind::divergent;
  return VerdictKind::inconclusive;
}

/// Its p values; differences of exactly 0 count against a difference.
static PValues sign_p_values(std::span<const double> differences, double margin) {
  const int n = static_cast<int>(differences.size());
  if (n < 2) return {};
  const Sides high = sides_of(differences, margin), low = sides_of(differences, -margin),
              zero = sides_of(differences, 0);
  return {std::max(sign_tail(n, high.below), sign_tail(n, low.above)),
          std::min(1.0, 2 * sign_tail(n, std::max(zero.above, zero.below)))};
}

namespace {

constexpr uint64_t kSkewKey = 0x736b6577;  // "skew"
constexpr int kSimulated = 9999;
constexpr std::size_t kMostSimulated = 100;  ///< values of a sample whose skewness is simulated

double uniform(const KeyedDraws& draws, uint64_t counter) {
  return static_cast<double>(draws.bits(counter) >> 11) * 0x1p-53;
}

/// |skewness| of kSimulated normal samples of n values, ascending; simulated once a size.
const std::vector<double>& normal_skewness(std::size_t n) {
  static std::mutex mutex;
  static std::map<std::size_t, std::vector<double>> known;
  const std::lock_guard lock(mutex);
  std::vector<double>& sizes = known[n];
  if (!sizes.empty()) return sizes;
  const KeyedDraws draws(kSkewKey + n);
  std::vector<double> sample(n);
  uint64_t counter = 0;
  for (int i = 0; i < kSimulated; ++i) {
    for (double& value : sample) {
      value = standard_normal(uniform(draws, counter), uniform(draws, counter + 1));
      counter += 2;
    }
    sizes.push_back(std::abs(skewness_of(sample)));
  }
  std::ranges::sort(sizes);
  return sizes;
}

/// D'Agostino (1970): a function of skewness that is nearly standard normal.
double transformed(double skewness, double n) {
  const double y = skewness * std::sqrt((n + 1) * (n + 3) / (6 * (n - 2)));
  const double beta2 = 3 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9));
  const double w2 = std::sqrt(2 * (beta2 - 1)) - 1;
  return std::asinh(y / std::sqrt(2 / (w2 - 1))) / std::sqrt(0.5 * std::log(w2));
}

}  // namespace

double skewness_of(std::span<const double> values) {
  const PairedSummary summary = summarize_differences(values);
  if (summary.sd == 0) return 0;
  double squares = 0, cubes = 0;
  for (const double value : values) {
    const double rest = (value - summary.mean) / summary.sd;
    squares += rest * rest;
    cubes += rest * rest * rest;
  }
  const double n = summary.n;
  return cubes / n / std::pow(squares / n, 1.5);
}

double skewness_p(std::span<const double> values) {
  // Any two values lie as far on either side of their mean: skewness is 0 of all, and so is no more than that.
  if (values.size() < 3 || summarize_differences(values).sd == 0) return 1;
  const double skewness = std::abs(skewness_of(values));
  if (values.size() > kMostSimulated) {
    const double z = transformed(skewness, static_cast<double>(values.size()));
    return 2 * boost::math::cdf(boost::math::complement(boost::math::normal(), z));
  }
  const std::vector<double>& normal = normal_skewness(values.size());
  const auto as_skewed = normal.end() - std::ranges::lower_bound(normal, skewness);
  return (1.0 + static_cast<double>(as_skewed)) / (kSimulated + 1);
}

bool is_skewed(const Outcome& outcome) {
  return outcome.test == OutcomeTest::t && outcome.n >= kSkewPairs && outcome.p_skewed <= kSkewLevel;
}

std::string skew_in_words(const Outcome& outcome) {
  return fmt::format(
      "the paired differences are skewed or have outliers (skewness {:+.1f}, p {:.2g}, {} pairs): the t test then errs more often "
      "than alpha {:g} says, less so with more seeds; primary.test: sign tests the median, but is less reliable for the mean",
      outcome.skewness, outcome.p_skewed, outcome.n, outcome.alpha);
}

std::string unseen_in_words(const std::vector<CellResult>& cells) {
  int most = 0;
  double alpha = 0;
  for (const CellResult& cell : cells) {
    if (cell.noise || cell.anchor || cell.failure || !cell.outcome) continue;
    if (cell.verdict != VerdictKind::equivalent || cell.outcome->n <= most) continue;
    most = cell.outcome->n;
    alpha = cell.outcome->alpha;
  }
  if (most < 2) return "";
  return fmt::format("A failure in fewer than {:.0f} % of seeds may simply not be among these {} (probability above {:g} %)",
                     100 * unseen_share(most, 1 - alpha), most, 100 * alpha);
}

double unseen_share(int pairs, double level) { return 1 - std::pow(1 - level, 1.0 / pairs); }

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
