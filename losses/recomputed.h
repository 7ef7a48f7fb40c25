#pragma once
// Activation checkpointing: a piece of a model is run without a graph, and again with one in the backward
// pass.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace lockstep {

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
