#pragma once
// Averages of the parameters (EMA): do they follow the live ones as the reference's do?

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/compare/forced/values.h"
#include "harness/verdict/evidence/difference.h"

namespace lockstep {

/// How an average came from the step before: average = decay * average + (1 - decay) * parameter.
struct AverageStep {
  std::string worst;      ///< the tensor that lies furthest from it
  double decay = 0;       ///< that fits best, over all tensors
  double residual = 0;    ///< largest distance of a tensor from it, in units of what rounding explains
  bool before = false;    ///< the parameters are those before the update
};

/// A run's step, and what it began with: the run's step before, or values that are known ("average/NAME" for the averages).
struct AveragedStep {
  const StepOfRun& step;
  const StepOfRun* before = nullptr;  ///< or null
  const Snapshot* state = nullptr;    ///< or null
};

/// Fitted over rank 0's averages; with `decay` of that value instead. Nothing where values of this step or the one before were not
/// kept, or nothing moved.
std::optional<AverageStep> average_step(const AveragedStep& at, std::optional<double> decay = std::nullopt);

/// The tensor of run B whose average does not come from its own parameters as the reference's does from its. Nothing where the
/// reference's own follows no such rule.
std::optional<Difference> averages_difference(const AveragedStep& a, const AveragedStep& b);

}  // namespace lockstep
