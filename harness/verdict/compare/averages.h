#pragma once
// Averages of the parameters (EMA): do they follow the live ones as the reference's do?

#include <optional>
#include <string>

#include "harness/verdict/evidence/align.h"
#include "harness/verdict/evidence/difference.h"

namespace lockstep {

/// How an average came from the step before: average = decay * average + (1 - decay) * parameter.
struct AverageStep {
  std::string worst;      ///< the tensor that lies furthest from it
  double decay = 0;       ///< that fits best, over all tensors
  double residual = 0;    ///< largest distance of a tensor from it, in units of what rounding explains
  bool before = false;    ///< the parameters are those before the update
};

/// Fitted over rank 0's averages; with `decay` of that value instead. Nothing where values of this step or the one before were not
/// kept, or nothing moved.
std::optional<AverageStep> average_step(const StepOfRun& before, const StepOfRun& step, std::optional<double> decay = std::nullopt);

/// The tensor of run B whose average does not come from its own parameters as the reference's does from its. Nothing where the
/// reference's own follows no such rule.
std::optional<Difference> averages_difference(const std::optional<StepOfRun>& before_a, const StepOfRun& a, const std::optional<StepOfRun>& before_b,
                                              const StepOfRun& b);

}  // namespace lockstep
