#pragma once
// The section of `question: calibration`.

#include <cstdint>

namespace lockstep {

/// What it draws.
struct CalibrationConfig {
  int64_t draws = 20000;      ///< synthetic comparisons of each kind
  int64_t comparisons = 200;  ///< drawn from the pool of real runs
  int pairs = 10;             ///< of each comparison
  int64_t draw_seed = 1;
};

}  // namespace lockstep
