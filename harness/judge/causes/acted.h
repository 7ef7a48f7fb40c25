#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/answer/results/results.h"

// Rollout against trainer: log-probabilities as a rollout acted by them, and as the trainer computes them again at the
// same weights.

namespace lockstep {

/// Of a transition of a chain, or of a token.
struct ActedTransition {
  int64_t step = 0, t = 0;  ///< the update, and its place in the row
  int rank = 0;
  std::string row;
  double acted = 0, recomputed = 0;
};

struct ActedRecord {
  std::vector<ActedTransition> all;
  /// Recomputations with one thing otherwise, by what that is: "float64", "back_1", "temperature_0.7"; a value for each
  /// transition, NaN where it has none.
  std::map<std::string, std::vector<double>> again;
  bool stored = false;            ///< what is recomputed is what the loss has as the old one
  double acted_rounds = 0x1p-16;  ///< what rounding may change of an acted one, relative to it, or to 1
};

/// A line is an object: `acted`, `recomputed`; `step` (or `update`), `t`, `rank` and `row` where there are any;
/// `recomputed_WHAT` a recomputation with that otherwise. Throws ConfigError.
ActedRecord read_acted(const std::string& path);

/// `identical` or `within_envelope` if they agree, `divergent` with its cause if not, `inconclusive` if nothing can be
/// compared.
Mechanism judge_acted(const ActedRecord& record);

/// Of a run whose trainer recorded them (TrainerRules::acted_column), at every step. Throws TraceError.
Mechanism judge_acted_run(const std::string& run_dir);

}  // namespace lockstep
