#pragma once
// The forced comparison: gradients of a cell at the reference's own parameters and batches, against a
// measured band.

#include <string>
#include <vector>

#include "harness/judge/judge.h"

namespace lockstep {

/// Run folders. The free runs may be left empty; then the exact phases are compared in the forced runs
/// themselves.
struct ForcedInputs {
  std::string reference_free, cell_free;
  std::string forced_reference;
  std::vector<std::string>
      forced_repeats;  ///< permuted rows and order of reduction; empty: no band is measured
  std::string forced_cell;
  BandConfig band;
};

/// Mechanism of a cell against its reference. At each forced step, per tensor g of the reduced gradients,
///
///   band = max(factor * max over repeats |g_repeat - g_ref|, floor * epsilon * |sum of |terms||) (2-norms)
///
/// (of tensors with a single element, which four repeats measure too rarely, 8 * factor) with epsilon of
/// float32; energies (by row id and column id), loss and gradient norm likewise. Sample ids,
/// random streams and control values are compared exactly at all steps of the free runs; the earliest (step,
/// phase) outside is the first divergence. Throws TraceError if a trace is missing, damaged or lacks what
/// forced runs keep.
Mechanism judge_forced(const ForcedInputs& inputs);

}  // namespace lockstep
