#pragma once
// What a calibration is made from.

#include <vector>

#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/questions/calibration/calibration_config.h"

namespace lockstep {

struct CalibrationInputs {
  Primary primary;
  SeedsAuto looks;  ///< of the sequential rule that is tried beside the one with a fixed number of pairs
  CalibrationConfig config;
  std::vector<double> pool;  ///< the primary metric at the end of each run, by seed
  int jobs = 1;              ///< threads; the result does not depend on it
};

}  // namespace lockstep
