#pragma once

#include <string>
#include <vector>

#include "harness/judge/causes/rules.h"

// The loss of the divergence's step, and the rows that it is made of, beside the reference's.

namespace lockstep::causes {

/// "loss 2.5 where the reference has 2.25". Needs forced runs.
std::string losses_text(const CauseInputs& inputs);

/// One rank of the cell.
struct RankRows {
  RankLoss rank;
  std::vector<double> expected;  ///< what the reference has for its rows, in their order
};

/// Every rank's rows with the reference's losses of the same samples, if every row that counts (its loss is
/// not 0) agrees with the reference: then the rows are right, and only what the loss makes of them is wrong.
/// Empty if a row disagrees, or if the divergence does not lie in the loss of a forced step whose row losses
/// both runs kept. Exact arithmetic records a row's loss as it was differentiated: there the rows are taken to be the reference's,
/// and the rank's loss is what it made of them.
std::vector<RankRows> rows_that_agree(const CauseInputs& inputs);

}  // namespace lockstep::causes
