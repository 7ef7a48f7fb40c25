#pragma once
// Results built by hand, for reports: what a judge would fill in, without one.

#include "harness/answer/results/results.h"

namespace lockstep {

/// An outcome matrix: equivalent, divergent, one stream, inconclusive, failed, and a power control that was
/// caught.
Results outcome_results();

/// The same with the power control judged equivalent: the matrix cannot tell.
Results missed_control_results();

/// A mechanism matrix of real ranks: identical, within the band, far outside it, without forced steps.
Results mechanism_results();

/// Names, errors and log lines that try to become markup, text that is no text, figures that are no numbers.
Results hostile_results();

/// A detection matrix that falls short: one mutant missed, one named wrongly, a false alarm.
Results detection_results();

/// Losses certified at two numbers of ranks, one of them not, one that failed.
Results certificate_results();

/// Six layouts times three kinds of negatives, each against the same objective at 1x24; a batch that grows
/// from 3 to 24 rows under four rules; two power controls, three A/A pairs; timings and noise scales.
Results convergence_results();

/// Three cells whose seeds were added look by look: decided at once, decided late, ended by the budget.
Results sequential_results();

/// Nothing was selected.
Results empty_results();

/// `cells` cells with two curves of `points` points each and `forced` forced steps.
Results large_results(int cells, int points, int forced);

}  // namespace lockstep
