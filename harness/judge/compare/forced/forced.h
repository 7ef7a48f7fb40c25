#pragma once
// The forced comparison: gradients of a cell at the reference's own parameters and batches, against a
// measured band.

#include <string>
#include <vector>

#include "harness/judge/compare/compared.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/matrix/matrix.h"

namespace lockstep {

/// The free runs and their configs, and run folders of the forced ones. The free runs may be left empty; then the exact
/// phases are compared in the forced runs themselves. Repeats are forced: permuted rows and order of reduction; without
/// any no band is measured. Without configs updates are not recomputed, and causes that depend on hyperparameters are
/// not named.
struct ForcedInputs : CompareOptions {
  std::string forced_reference = {}, forced_cell = {};
  /// The same in float64; of a run in float64 itself. Both or none; with them no repeat is looked at.
  std::string reference_twin = {}, cell_twin = {};
  int64_t forced_steps = 0;  ///< forced steps from this number on are not judged; 0: all are
  bool one_build = true;  ///< both were computed by one build of the programs: equal configs then have equal bits
};

/// A cell against its reference, at each forced step.
///
/// With twins two things are judged: whether both mean the same, by their twins' values; and whether the cell rounds as
/// the reference does, by the cell's values against its own twin's (TwinBounds has the bounds). Without them, per
/// tensor g of the gradients,
///
///   band = max(own, min(factor * q * |sum of |terms||, 4 * own), floor * epsilon * |sum of |terms||),
///   own = factor * max over repeats |g_repeat - g_ref| (2-norms)
///
/// where q is the upper quartile over the tensors of max over repeats |g_repeat - g_ref| / |sum of |terms||
/// (of tensors with a single element, which four repeats measure too rarely, 8 * factor) with epsilon of the
/// precision in which the terms were computed; or, if band.exact > 0, exact * max(|g_ref|, |sum of |terms||)
/// without any repeat. It holds for the mean over ranks of the local gradients and for the reduced ones;
/// scores (by row id and column id), loss and gradient norm likewise. Three things are judged without a
/// reference: the reduced gradient against the mean of the local ones, by the rounding of V terms; the update
/// against what the cell's own gradient gives; ledgers and replicas. Sample ids, random streams and control
/// values are compared exactly at all steps of the free runs; the earliest (step, phase) outside is the first
/// divergence. Where equal bits are promised (promise_equal_bits), every differing bit is outside, signs of zeros left out. Throws TraceError if a trace is missing, damaged or lacks what forced
/// runs keep.
Comparison compare_forced(const ForcedInputs& inputs);

}  // namespace lockstep
