#pragma once

#include <string>
#include <vector>

#include "harness/answer/results/results.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/compared.h"

// Certificates: is a loss's gradient that of its plain reference in one process, to the last digits of
// float64?

namespace lockstep {

/// At each forced step and for each parameter group ("all" too)
///
///   |g - g_ref| <= exact * max(|g_ref|, t), t the size of the terms    (2-norms, exact =
///   inputs.band.exact)
///
/// and likewise for the loss, whose rounding follows the energies' size. The second term judges a gradient
/// that is zero by symmetry fairly. Free runs and repeats of `inputs` are not looked at. `identical` if
/// nothing differs at all, `within_envelope` if certified, else `divergent`, with the first place as the
/// forced comparison names it. Throws TraceError if a trace is missing, damaged or lacks what forced runs
/// keep.
Mechanism judge_certificate(const ForcedInputs& inputs);

/// What a step of a forced run cost, from its ranks' traces and results. Energies are the scalar, curve or
/// metric `energies_computed`. A rank receives (V - 1) times its input in an all_gather and the tensor once
/// in an all_reduce or a broadcast; the gradients' reduction, which every loss pays alike, is left out.
/// Throws std::runtime_error.
StepCosts read_costs(const std::string& run_dir);

/// The cells by loss and number of ranks, in the order in which losses first come; ranks ascend.
Certificate certificate_of(const std::vector<CellResult>& cells, double exact);

}  // namespace lockstep
