#pragma once
// Gathers of encoded rows whose backward is wrong, as published losses have had it.

#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {

/// What the backward of a gather hands to the rank's own rows. The right one is the sum over the ranks.
enum class GatherBackward {
  none,       ///< nothing: a plain gather
  own_slice,  ///< what this rank's own loss says of them: the own rows are put back in
  average     ///< the mean over the ranks
};

struct GatheredBlock {
  at::Tensor action_ND;
  EncodedRows contexts;  ///< of all ranks, if they were asked for
  std::vector<int64_t> ids;
  int64_t offset = 0;  ///< where this rank's rows begin
  EncodedRows rows;    ///< this rank's own contexts
  at::Tensor own_bD;   ///< this rank's own encoded actions
};

/// Collective: this rank's encoded actions (and contexts) and those of all ranks.
GatheredBlock gather_encoded(const LossInput& input, GatherBackward backward, bool contexts);

/// Own rows against all ranks' encoded actions; only the actions are gathered.
LossOutput row_block_loss(const LossInput& input, GatherBackward backward);

/// Every rank computes the loss of all rows of all ranks. Needs dropout 0: rows of other ranks have no
/// streams here.
LossOutput full_block_loss(const LossInput& input, GatherBackward backward);

}  // namespace lockstep
