#pragma once
// Runs that are there for their speed: which, and with what config.

#include <string>
#include <vector>

#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/planned_run.h"

namespace lockstep {

/// The config of a timed run: the first cell's reference at this layout, on real ranks, with no trace, no
/// fault, no schedule and no evaluation but the last.
RunConfig timing_config(const Matrix& matrix, const Layout& layout);

/// "timing 8x3", which its runs have in place of a cell's name.
std::string timing_name(const Layout& layout);

/// `timing.repeats` runs of each timed layout, repeat by repeat, so that a machine that slows down slows all
/// layouts. They are alike in config and told apart by id; none shares a run of a cell.
std::vector<PlannedRun> timing_runs(const Matrix& matrix);

}  // namespace lockstep
