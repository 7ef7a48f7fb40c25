#pragma once
// Free traces of two layouts: what can be told without a forced step.

#include <cstdint>

#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/step_pairs.h"

namespace lockstep {

struct ScoreSpec;

/// What a difference says of a tensor that keeps its bits in a step.
inline constexpr const char* kNoChange = "no change in this step";

/// Scores with another count of columns a row, in the trainer's word for them: "2 negatives of 23".
Difference columns_difference(const ScoreSpec& scores, const StepOfRun& run, int64_t expected, int64_t actual,
                              int rank);

/// Mechanism of two runs of different layouts from free traces alone: `divergent`, or `inconclusive` with what
/// was compared and what was not. What must agree exactly is compared at every step; scores, loss and gradients
/// at steps that both begin with the same parameters, bit for bit (the first one, as a rule), by their values
/// where both traces keep them, else by norm, smallest and largest element. Later on nobody knows by how much
/// training has amplified rounding: under Adam a gradient that is zero by symmetry moves its parameter by a
/// full learning rate in a direction that rounding chooses. A step that both begin nearly alike is judged by values all the same,
/// where options.explains is given, and counts if that says so. Configs may be unknown.
Comparison compare_layouts(StepPairs& pairs, const CompareOptions& options);

}  // namespace lockstep
