#pragma once
// What a comparison of two runs may take for granted of their trainer.

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/evidence/align.h"

namespace lockstep {

/// The trainer that both runs' traces name; null if it is not one of ours, or if they name two.
const TrainerSpec* trainer_of(const RunReader& reference, const RunReader& cell);

/// What is known of its scores; for a null trainer, what holds for any.
const ScoreSpec& scores_of(const TrainerSpec* trainer);

}  // namespace lockstep
