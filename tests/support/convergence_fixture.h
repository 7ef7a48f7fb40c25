#pragma once
// Results of a convergence comparison, built by hand: what the report of such a matrix is drawn from.

#include "harness/verdict/results/results.h"

namespace lockstep {

/// Six layouts times three kinds of negatives, each against the same objective at 1x24; a batch that grows
/// from 3 to 24 rows under four rules; two power controls, three A/A pairs; timings and noise scales.
Results convergence_results();

/// Three cells whose seeds were added look by look: decided at once, decided late, ended by the budget.
Results sequential_results();

/// Error rates, coverage and power of the tests themselves, one rate of them on the bad side.

}  // namespace lockstep
