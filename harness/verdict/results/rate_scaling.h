#pragma once
// Is there anything to say of how the learning rate goes with the batch?

#include "harness/verdict/results/results.h"

namespace lockstep {

/// Does the matrix vary the global batch, or the rule that scales the learning rate? Only then do rules, their
/// exponents and gradient noise scales answer anything; every report asks here. Power controls and A/A pairs do
/// not count; a rule changes nothing in one process, which has no ranks to scale by.
bool varies_batch_or_rate_rule(const Results& results);

}  // namespace lockstep
