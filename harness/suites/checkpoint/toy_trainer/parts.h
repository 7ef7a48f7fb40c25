#pragma once
// The parts of the toy trainer that have a state from step to step. Each is a value: who judges a run keeps copies of
// them and feeds these with what the run recorded.

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "harness/lib/checkpoint/sampler_position.h"
#include "harness/suites/checkpoint/toy_trainer/config.h"
#include "harness/suites/checkpoint/toy_trainer/model.h"

namespace lockstep::toy {

inline constexpr double kNone = std::numeric_limits<double>::max();  ///< a metric that nothing is worse than

/// Warm-up, slow decay, and a plateau that lowers the rate. Its position counts updates.
struct Scheduler {
  int64_t position = 0;
  double best = kNone;
  int64_t worse = 0;  ///< evaluations since the best one
  double lowered = 1;
  /// What the base rate is multiplied by for the next update.
  double factor() const;
  void after_update() { ++position; }
  void after_evaluation(double metric);
  bool operator==(const Scheduler&) const = default;
};

/// A scale of the loss that grows while nothing overflows.
struct LossScale {
  double scale = 256;
  int64_t good = 0;  ///< updates since it last changed
  void after_update(bool overflow);
  bool operator==(const LossScale&) const = default;
};

/// Running mean and variance of each input.
struct Normaliser {
  std::array<double, kInputs> mean{}, variance = {1, 1, 1, 1, 1, 1};
  /// Of a batch: its rows, and of each input the sum and the sum of squares in kUnit.
  void after_batch(int64_t rows, std::span<const int64_t> sums, std::span<const int64_t> squares);
  bool operator==(const Normaliser&) const = default;
};

/// The best evaluation, and how many may follow without a better one.
struct Patience {
  double best = kNone;
  int64_t left = 0;
  /// Is it the best so far?
  bool after_evaluation(double metric, int64_t patience);
};

/// A generator whose state is one word that nothing but its own draws leads to (xorshift64*, Vigna 2016).
struct Generator {
  uint64_t word = 1;
  uint64_t next();
};

/// What steers the optimizer, as people change it in a run.
struct Controls {
  double rate = 0, decay = 0;
  bool operator==(const Controls&) const = default;
};
inline constexpr double kBaseRate = 0.3, kDecay = 0.01;
/// At these steps the rate and the decay are changed by hand.
void change_controls(int64_t step, Controls& controls, double& base_rate);

/// Adam's direction of one update for some of the elements; the moments move on. `update` counts from 1.
void adam(std::span<const float> gradient, std::span<float> first, std::span<float> second, int64_t update,
          std::span<float> direction);
inline constexpr float kBeta1 = 0.9F, kBeta2 = 0.99F;

inline constexpr float kAveraged = 0.9F;  ///< of the averaged weights that stays at each update
void average(std::span<float> averaged, std::span<const float> parameters);

/// Sample ids of an epoch in their order.
std::vector<int64_t> order_of(int64_t seed, int64_t epoch, int64_t samples);
/// The permutation's seed for the epoch after this one.
int64_t next_seed(int64_t seed, int64_t epoch);

}  // namespace lockstep::toy
