#pragma once
// What a matrix says as a whole: counts, whether it can tell at all, its first line.

#include "harness/verdict/results/results.h"

namespace lockstep {

/// Everything but the counts of runs, from the cells, the question and the primary metric.
///
/// can_tell is false if a power control's outcome is not `divergent`. Whether each question has a power control
/// of its own is said apart: `uncontrolled` names the references of cells that were called equivalent without
/// one. The margin is refused if it exceeds half of the effect of a power control: of the smallest effect among
/// the controls whose (1 - alpha) interval leaves out 0. A control that shows no effect has none to measure a
/// margin against; it was not caught, which is said in its own way (exit 1 or 5).
Summary summarize_results(const Results& results);

}  // namespace lockstep
