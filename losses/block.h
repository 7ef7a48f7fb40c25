#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <memory>
#include <span>
#include <utility>

#include "losses/loss.h"

// What an autograd Function hands from its forward to its backward beside tensors.

namespace lockstep {

/// A tensor of no elements that owns `object`: all that a Function saves can be counted if it saves only
/// tensors.
template <typename T>
at::Tensor holder_of(std::shared_ptr<T> object) {
  T* const raw = object.get();
  constexpr std::array<int64_t, 1> kNone{0};
  return at::from_blob(raw, kNone, [object = std::move(object)](void*) {}, at::kByte);
}

/// The object that `holder` owns.
template <typename T>
T& held_by(const at::Tensor& holder) {
  return *static_cast<T*>(holder.storage().mutable_data());
}

// What the in-batch forms share: candidates, the block of energies (in tiles if it is to be small), masks,
// and the sum over rows that count.
//
// B = rows of this rank (of the part that is computed), N = in-batch candidates.

/// Throws std::invalid_argument with `why` if the rows of the batch are not all the candidates there are.
void require_in_batch(const LossOptions& options, const at::Tensor& explicit_BnA, const char* why);

struct Block {
  Candidates candidates;
  EncodedRows rows;
  at::Tensor energy_BN;  ///< [B, N], with gradient
  at::Tensor target_B;   ///< [B] int64, the column of each row's positive
  at::Tensor valid_BN;   ///< [B, N] bool, candidates; undefined: all
  at::Tensor counted_B;  ///< [B] bool; undefined: all
  bool tiled = false;
};

/// Collective: gathers the candidates and computes the energies.
Block make_block(const LossInput& input);

/// [B, N] bool: false where a candidate has the row's own sample id and is not its own. Undefined if
/// duplicates are kept.
at::Tensor valid_candidates(const LossInput& input, const Candidates& candidates, const at::Tensor& target_B);

/// Energies of every row with every candidate. With more candidates than options.tile_columns they are
/// computed tile by tile without a graph, and once more in the backward pass: memory is bounded by the tile,
/// and gradients of the rows, the candidates and the head's parameters leave in one piece each
/// (docs/trainers.md). Randomness is replayed, since every pair's draws are keyed by the pair.
at::Tensor block_energies(const LossInput& input, const EncodedRows& rows, const at::Tensor& action_ND,
                          std::span<const int64_t> ids);
/// Energies in bfloat16 as float32, others as they are: a loss divides, sums and takes logarithms in float32
/// at least.
at::Tensor in_loss_precision(const at::Tensor& energies);

/// Part of an output that every form fills alike. Rows that do not count become zeros in `row_losses_B`; the
/// loss is R / total_rows times their sum, 0 if no row counts.
LossOutput make_output(const LossInput& input, const at::Tensor& counted_B, const at::Tensor& row_losses_B);

/// Adds what is reported of the block itself: energies and their means, names, counts.
void describe_block(const Block& block, LossOutput& output);

/// Means of the rows' own energies and of the other candidates'; 0 where there are none.
struct EnergyMeans {
  double positive = 0, negative = 0;
};
EnergyMeans energy_means(const at::Tensor& energy_BN, const at::Tensor& target_B, const at::Tensor& valid);

}  // namespace lockstep
