#pragma once
// Results as the judge gives them, for reports that show its own sentences.

#include "harness/verdict/results/results.h"

namespace lockstep {

/// A matrix at one global batch whose margin was changed after its runs: two cells that train the same, one that
/// is shifted within the margin, one undecided, one divergent, one that failed, and a power control. Its cells
/// have gradient noise scales to which no theory applies, and one parts at a single step.
Results judged_results();

}  // namespace lockstep
