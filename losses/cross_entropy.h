#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "harness/trainers/comm/comm.h"
#include "losses/denominator.h"
#include "losses/loss.h"

// Cross-entropy at every valid time step of rows of unequal length, and the count that it is divided by.
//
// B = rows of this rank (of the part that is computed), T = time steps, K = classes.

namespace lockstep {

struct CrossEntropyInput {
  at::Tensor logits_BTK;       ///< float32 or float64; bfloat16 is summed in float32
  at::Tensor target_BT;        ///< int64; where a step is not valid it may be anything
  at::Tensor valid_BT;         ///< bool; steps that count
  double label_smoothing = 0;  ///< share of each target that is spread over all K classes, as PyTorch does
  TermMark mark = {};          ///< of the logits
};

/// Each row's sum over its valid steps of -sum_k q_k log softmax(logits)_k, in nats; [B] with gradient, 0 for a
/// row without a valid step. Logits of other steps are not looked at, whatever they are. Throws
/// std::invalid_argument naming the shapes if they do not fit.
at::Tensor cross_entropy_row_sums(const CrossEntropyInput& input);

/// The same by its definition, row by row: slow, plain, and written independently. In float64 the function
/// above is certified against it.
at::Tensor cross_entropy_row_sums_by_definition(const CrossEntropyInput& input);

/// The counts of all ranks from this rank's own of its whole step, before its first backward pass. Collective
/// among several ranks where the denominator is global and counts something ("loss.valid_steps", "loss.rows");
/// else nothing moves and `own` comes back.
LossCounts counts_of_all_ranks(Comm& comm, const Denominator& denominator, const LossCounts& own);

// Squared error at every valid time step of rows of unequal length.
//
// B = rows of this rank (of the part that is computed), T = time steps, C = channels.

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
