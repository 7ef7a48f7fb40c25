#pragma once
// What the fixtures of results are put together from.

#include <string>

#include "harness/judge/results.h"

namespace lockstep::fixture {

/// A forced step whose gradients are `ratio` times the reference's, with that residual, using that share of the band.
ForcedStep forced(int64_t step, double ratio, double residual, double share);
/// A mechanism within the band, using that share of it.
Mechanism within(double used);
/// Everything of a parity matrix but its cells.
Results frame();
/// Counted from the cells, as a judge would; what only it knows is given.
Summary summarize(const Results& results, int runs, int exit_code, const std::string& sentence);

}  // namespace lockstep::fixture
