#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "losses/loss.h"

// B = rows of this rank, N = candidates (columns) of all ranks, R = world size.

namespace lockstep {

struct LossInput;

struct InfoNce {
  at::Tensor loss;          ///< [] scalar; its mean over ranks is the loss of one process that holds all rows
  at::Tensor row_losses_B;  ///< [B] nats, with gradient
  double energy_positive = 0;  ///< mean energy of the rows' own actions
  double energy_negative = 0;  ///< mean energy of the other valid candidates; 0 if there is none
};

struct InfoNceOptions {
  double world_size = 1;  ///< R
  double total_rows = 0;  ///< rows of all ranks that the loss averages over
};

/// In-batch swap InfoNCE of this rank's rows: logits -E / tau, loss = R / total_rows * sum_i (logsumexp_j
/// s_ij - s_i,target). After the mean over ranks its gradient is that of one process holding all rows,
/// provided that the candidates are raw data (no gradient flows through the gather).
///
///   energy_BN  [B, N]  float32 or float64; lower is a better match
///   tau        []      temperature, > 0
///   target_B   [B]     int64, the column of each row's positive
///   valid_N    [N] or [B, N]  bool, columns that are candidates; undefined: all
///
/// Throws std::invalid_argument naming both shapes if they do not fit.
InfoNce row_infonce(const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                    const at::Tensor& valid_N, const InfoNceOptions& options);

/// logsumexp_j s_ij - s_i,target of every row [B], in nats; arguments as of row_infonce.
at::Tensor infonce_row_losses(const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                              const at::Tensor& valid_N, const TermMark& mark = {});

/// The same, without marks, as one node of the graph: the same operations in the same order, and PyTorch's derivatives of them. In exact
/// arithmetic, where a row is small, most of its time would be that of nodes.
at::Tensor infonce_row_losses_in_one(const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                                     const at::Tensor& valid_N);

/// Whichever of the two is faster. Bits are the same.
at::Tensor infonce_row_losses(const LossInput& input, const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                              const at::Tensor& valid_N);

/// Weights of two groups of negatives in one softmax, declared so that its chance level does not depend on
/// how many there are: l = -s_pos + logsumexp(s_pos, log w_g - log n_g + s_k for the n_g candidates k of each
/// group g), whose value for a constant energy is log(1 + sum of w_g). With 23 in-batch negatives (24 rows)
/// and 8 explicit ones it is the plain softmax over all of them.
inline constexpr double kInBatchWeight = 23;
inline constexpr double kExplicitWeight = 8;

// Activation checkpointing: a piece of a model is run without a graph, and again with one in the backward
// pass.

/// A piece of a model as a function of its tensors: activations first, then parameters. Called a second time
/// (`again`) with equal inputs it must give equal bits; what it draws is keyed, so it draws the same.
using ModelPiece = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs, bool again)>;

/// What the piece gives, with gradients that are those of calling it, bit for bit, while only its inputs are
/// kept. `parameters` stand in the order of their use: their gradients leave in the reverse of it, as without
/// recomputing, so that a reducer sees the same order. The piece is kept with the graph: it must not own what
/// comes out of it. `rests`: where nobody's gradient reaches what it gave (all are zeros), nothing is computed again and no
/// gradient leaves: of a part of a whole whose other parts give them.
std::vector<at::Tensor> recomputed(ModelPiece piece, const std::vector<at::Tensor>& activations,
                                   const std::vector<at::Tensor>& parameters, bool rests = false);

}  // namespace lockstep
