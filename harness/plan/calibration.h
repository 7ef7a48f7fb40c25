#pragma once
// What `question: calibration` and `seeds: auto` ask of a config.

#include "harness/plan/matrix_source.h"

namespace lockstep {

/// Settles what a calibration leaves unsaid: its one cell is a pool of runs, held against nothing. Reports
/// sections that it has no use for, and a pool that is too small to be drawn from.
void finish_calibration(MatrixSource& source, Problems& problems);

/// Reports looks that cannot be held, and questions whose verdict more seeds do not change.
void check_seeds_auto(const MatrixSource& source, Problems& problems);

}  // namespace lockstep
