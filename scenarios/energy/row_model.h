#pragma once
// The model of one row as exact arithmetic runs it: the encoders and the head are one node of the graph each, in place of
// some forty. What a node costs beside its numbers is most of what a small row costs.

#include "scenarios/energy/model.h"

namespace lockstep {

/// As EnergyModel::encode_context, of one row: the same operations in the same order, and PyTorch's derivatives of them, so that bits
/// are the same too (a test holds the two against each other). Data have no gradient: what has one, such as predictions that serve as
/// candidates, goes through the model itself.
EncodedContext encode_row_context(const EnergyModel& model, const at::Tensor& context_1SC, const at::Tensor& mask_1S);

/// As EnergyModel::encode_action, of the candidates that rows share.
at::Tensor encode_row_action(const EnergyModel& model, const at::Tensor& action_NA);

/// As EnergyModel::head, of one row: [1, N].
at::Tensor row_head(const EnergyModel& model, const EncodedContext& context, const at::Tensor& action_ND,
                    const at::Tensor& dropout_1NW);

}  // namespace lockstep
