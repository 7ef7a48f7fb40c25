#pragma once
// Free traces of two layouts: what can be told without a forced step.

#include <cstdint>

#include "harness/compare/cause_inputs.h"
#include "harness/compare/step_pairs.h"

namespace lockstep {

struct ScoreSpec;

/// Scores with another count of columns a row, in the trainer's word for them: "2 negatives of 23".
Difference columns_difference(const ScoreSpec& scores, int64_t step, int64_t expected, int64_t actual,
                              int rank, int world_size);

/// Mechanism of two runs of different layouts from free traces alone. What rounding touches is held to the
/// analytic bound while both runs have the same parameters; what leaves it later is undecided, since nobody
/// knows by how much training amplifies rounding. A null config is not known.
Comparison compare_layouts(StepPairs& pairs, const RunConfig* reference_config, const RunConfig* cell_config);

}  // namespace lockstep
