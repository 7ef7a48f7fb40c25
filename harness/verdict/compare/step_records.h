#pragma once
// Records of a step by phase and name, a difference between two of them, and what is known of the
// trainer.

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/evidence/align.h"
#include "harness/verdict/evidence/difference.h"

namespace lockstep {

/// Null if the rank recorded none of that name in that phase.
const Record* find_record(const StepRecords& step, Phase phase, const std::string& name);
std::vector<const Record*> records_of(const StepRecords& step, Phase phase);

/// How many columns the rank's scores of that name have; -1 where it recorded none.
int64_t columns_of(const StepRecords& rank, const std::string& scores);

/// The mean of the ranks' losses; nothing where a rank recorded none.
std::optional<double> mean_loss(const StepOfRun& step);

/// A difference whose size is not a matter of rounding, with its sentence.
Difference difference_at(int64_t step, Phase phase, int rank, const std::string& where,
                         DivergenceKind kind, const std::string& expected, const std::string& actual,
                         int world_size);

/// The trainer that both runs' traces name; null if it is not one of ours, or if they name two.
const TrainerSpec* trainer_of(const RunReader& reference, const RunReader& cell);

/// What is known of its scores; for a null trainer, what holds for any.
const ScoreSpec& scores_of(const TrainerSpec* trainer);

}  // namespace lockstep
