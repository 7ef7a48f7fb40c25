#pragma once
// The first steps of a cell and of its reference in exact arithmetic, beside the runs that are asked about.

#include <cstdint>
#include <optional>

#include "harness/verdict/plan/matrix.h"

namespace lockstep {

struct ExactPair {
  RunConfig reference, cell;
  int64_t steps = 0;
};

/// Of the cell's first seed; nothing if the matrix asks for none, or where the two are not meant to compute the same: a
/// power control, an A/A pair, another batch, a run that must fail, a run that keeps no trace.
std::optional<ExactPair> exact_pair_of(const Matrix& matrix, const Cell& cell);

}  // namespace lockstep
