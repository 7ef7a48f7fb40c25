#pragma once
// A reward function is somebody else's code: it may throw, hang, give too few numbers, or NaN.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/lib/rewards/failure.h"

namespace lockstep::rewards {

/// Rewards of these samples, in their order.
using ScoreFunction = std::function<std::vector<double>(const std::vector<int64_t>& ids)>;

struct ScoreOutcome {
  std::vector<double> values;
  Failure failure;  ///< score-threw, score-hung, score-length, score-not-finite
};

struct ScoreOptions {
  /// Seconds until a function that has given no answer hangs; its thread is then left to itself until the process ends, so
  /// the function must own what it uses. 0: called in place, for as long as it takes.
  double deadline_s = 0;
  bool refuse_not_finite = true;
};

/// Calls the function once. Nothing escapes.
ScoreOutcome call_score(const ScoreFunction& score, const std::vector<int64_t>& ids, const ScoreOptions& options);

}  // namespace lockstep::rewards
