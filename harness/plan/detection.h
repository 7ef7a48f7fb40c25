#pragma once
// The detection matrix: trials of planted faults and of none, each drawn from keys alone.

#include <vector>

#include "harness/plan/matrix_source.h"

namespace lockstep {

/// Reads `all` or a list of mutants.
void read_mutants(const Entry& entry, DetectionConfig& detection, Problems& problems);

/// Settles what a detection matrix leaves unsaid: length, seeds, forced steps (all), no certification.
/// Reports keys that it draws or makes itself.
void finish_detection(MatrixSource& source, bool seeds_are_overridden, Problems& problems);

/// Cells of a detection matrix: mutants x seeds ("flip_bit #3"), then pairs ("flip_bit + grad_scale #7"),
/// then clean ones ("clean #512"). What a trial draws (layout, optimizer, rank, step, tensor, bit, factor) is
/// a hash of (draw_seed, its name, what is drawn), so that a trial is the same whatever else is in the
/// matrix. References are one process of the same global batch; trials of one seed draw from few settings, so
/// that they share references. Reports mutants that cannot show within detection.steps.
std::vector<Cell> detection_cells(const MatrixSource& source, Problems& problems);

}  // namespace lockstep
