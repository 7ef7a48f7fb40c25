#pragma once
// Squared error at every valid time step of rows of unequal length.
//
// B = rows of this rank (of the part that is computed), T = time steps, C = channels.

#include <ATen/core/Tensor.h>

#include "losses/term_mark.h"

namespace lockstep {

struct SquaredErrorInput {
  at::Tensor prediction_BTC;  ///< float32 or float64; bfloat16 is summed in float32
  at::Tensor target_BTC;      ///< of any floating type
  at::Tensor valid_BT;        ///< bool; steps that count
  TermMark mark = {};         ///< of the predictions
};

/// Each row's sum over its valid steps of the mean over channels of (prediction - target)^2, in units of the target squared; [B] with
/// gradient, 0 for a row without a valid step. What stands at other steps is not looked at. Throws std::invalid_argument naming the
/// shapes if they do not fit.
at::Tensor squared_error_row_sums(const SquaredErrorInput& input);

/// The same by its definition, row by row: slow, plain, and written independently.
at::Tensor squared_error_row_sums_by_definition(const SquaredErrorInput& input);

}  // namespace lockstep
