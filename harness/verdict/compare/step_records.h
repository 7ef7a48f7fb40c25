#pragma once
// Records of a step by phase and name, and a difference between two of them.

#include <optional>
#include <string>
#include <vector>

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

}  // namespace lockstep
