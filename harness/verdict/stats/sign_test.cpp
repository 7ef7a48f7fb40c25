#include "harness/verdict/stats/sign_test.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <map>
#include <utility>

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

}  // namespace lockstep
