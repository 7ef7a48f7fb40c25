#include "harness/verdict/stats/tests.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "harness/base/numbers.h"
#include "harness/verdict/stats/estimates.h"

namespace lockstep {
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

VerdictKind decide_by_sign(std::span<const double> differences, const Primary& primary) {
  const int n = static_cast<int>(differences.size());
  const Sides high = sides_of(differences, primary.margin), low = sides_of(differences, -primary.margin);
  if (std::max(sign_tail(n, high.below), sign_tail(n, low.above)) <= primary.alpha) return VerdictKind::equivalent;
  if (sign_tail(n, std::max(high.above, low.below)) <= primary.alpha / 2) return VerdictKind::divergent;
  return VerdictKind::inconclusive;
}

PValues sign_p_values(std::span<const double> differences, double margin) {
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

}  // namespace lockstep
