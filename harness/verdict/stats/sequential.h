#pragma once
// `seeds: auto`: what the looks at a growing number of pairs decide.

#include <span>

#include "harness/verdict/stats/decision.h"
#include "harness/verdict/stats/outcome.h"
#include "harness/verdict/stats/spending.h"

namespace lockstep {

/// Looks at the differences, in the order in which pairs were added, until one of the looks decides or no
/// pairs are left. Each look decides at its nominal level.
std::vector<Look> take_interim_analyses(std::span<const double> differences, const std::vector<SpendingAnalysis>& looks,
                             const Primary& primary);

/// judge_outcome of the pairs of the look that decides, or of all: intervals, power and the seeds that would
/// decide are at that look's nominal level, which the sentence says. Throws OutcomeError.
Outcome judge_sequentially(const OutcomeInputs& inputs, const SeedsAuto& seeds);

/// `primary` with the nominal level of the outcome's last look in place of alpha; unchanged where there were
/// no looks.
Primary at_last_analysis(Primary primary, const Outcome& outcome);

/// Is the cell undecided, so that more seeds would be looked at?
bool wants_more_seeds(const CellResult& cell, const SeedsAuto& seeds);

/// "10 paired seeds"; "5 to 40 paired seeds" where cells had different numbers.
std::string pairs_in_words(int fewest, int most);

}  // namespace lockstep
