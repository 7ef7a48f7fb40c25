#pragma once
// Simulations: draws by a counter, the same in every run; shares, judged so that a right program does not fail by luck.

#include <boost/math/distributions/beta.hpp>
#include <cmath>
#include <cstdint>

#include "harness/answer/results/results.h"
#include "harness/plan/config/canonical.h"

namespace lockstep::support {

class NormalDraws {
 public:
  explicit NormalDraws(uint64_t key) : next_(key << 32) {}
  /// In (0, 1].
  double uniform() { return (static_cast<double>(mix_key(next_++) >> 11) + 1) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  uint64_t next_;
};

struct Proportion {
  int hits = 0, trials = 0;
};

/// Clopper-Pearson bounds that hold but once in a million: a promise is broken where they lie wholly on its
/// bad side.
inline Interval certain_bounds(const Proportion& p) {
  using boost::math::beta_distribution;
  constexpr double kMiss = 5e-7;
  const double k = p.hits, n = p.trials;
  return {p.hits == 0 ? 0.0 : quantile(beta_distribution<>(k, n - k + 1), kMiss),
          p.hits == p.trials ? 1.0 : quantile(complement(beta_distribution<>(k + 1, n - k), kMiss)),
          1 - 2 * kMiss};
}

}  // namespace lockstep::support
