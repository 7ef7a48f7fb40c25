#pragma once
// How far rounding alone moves an outcome: A/A pairs show that seeds are not the only noise, and that another
// machine may come to another result.

#include <string>
#include <vector>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// Fills `rounding` of every outcome of two seeds or more whose cell or reference has A/A pairs that differ in
/// rounding alone (row_order, epsilon): not where random draws differ. Where rounding may change the verdict, or
/// moves the difference by half a margin or more, the outcome's sentence says so.
///
/// Of each kind of pairs the widest counts. A pair of the cell itself has twice the variance of one of its runs,
/// one of its reference twice that of the reference's; a difference has both once, so it has the mean of the
/// two, or where one of them alone was measured as much as that one. Between two machines it is drawn twice: its
/// mean over n seeds moves by t * sd * sqrt(2 / n), t Student's quantile of the A/A pairs' seeds at 1 - alpha /
/// 2.
void note_rounding(std::vector<CellResult>& cells);

/// Would the outcome's verdict be another if its difference came out otherwise by up to `rounding->shift`?
bool may_turn(const Outcome& outcome);

/// Is there something to be said of rounding?
bool is_unsteady(const Outcome& outcome);

/// "rounding alone moves it: A/A pairs differ with a standard deviation of 0.028 (10 seeds), so that ...". Of an
/// outcome that is_unsteady.
std::string rounding_in_words(const Outcome& outcome);

}  // namespace lockstep
