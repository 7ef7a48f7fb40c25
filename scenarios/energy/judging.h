#pragma once
// What the judge asks of the energy trainer beside causes: its scores, and how far the theory of batch sizes
// holds for it.

#include <string>

#include "harness/config/trainer_spec.h"

namespace lockstep {

/// Energies of a row over candidates, of which one is its own and the others are negatives.
ScoreSpec energy_scores();

/// How the objective differs from the reference's: candidates that are rows of the batch change in number
/// with the batch, or with the rank's share of it. Empty if it does not.
std::string energy_other_objective(const RunConfig& config, const RunConfig& reference);

/// Why the theory of the gradient noise scale does not hold for the run's candidates, or how far it does;
/// empty where each row's loss is its own.
std::string energy_noise_scale_caveat(const RunConfig& config);

bool energy_rows_may_not_count(const RunConfig& config);

}  // namespace lockstep
