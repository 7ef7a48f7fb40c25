#include "losses/recomputed.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "losses/held.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor leaf(const at::Tensor& tensor, bool wanted) {
  at::Tensor copy = tensor.detach();
  return wanted ? copy.requires_grad_(true) : copy;
}

/// The piece stands before a piece's own inputs, and whether it rests behind them.
constexpr std::size_t kInputsBefore = 1, kInputsBehind = 1;

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& piece, at::TensorList inputs, bool rests) {
    context->save_for_backward(inputs.vec());
    context->saved_data["piece"] = piece;
    context->saved_data["rests"] = rests;
    return held_by<ModelPiece>(piece)(inputs.vec(), /*again=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor holder = context->saved_data["piece"].toTensor();
    const variable_list inputs = context->get_saved_variables();
    variable_list result(kInputsBefore + inputs.size() + kInputsBehind);
    const auto is_zero = [](const at::Tensor& gradient) { return !gradient.defined() || !gradient.any().item<bool>(); };
    if (context->saved_data["rests"].toBool() && std::ranges::all_of(gradients, is_zero)) return result;
    const c10::AutoGradMode with_graph(true);
    variable_list leaves, wanted;
    std::vector<std::size_t> place;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      leaves.push_back(leaf(inputs[i], context->needs_input_grad(kInputsBefore + i)));
      if (leaves.back().requires_grad()) {
        wanted.push_back(leaves.back());
        place.push_back(i);
      }
    }
    const variable_list outputs = held_by<ModelPiece>(holder)(leaves, /*again=*/true);
    const variable_list found =
        torch::autograd::grad(outputs, wanted, gradients, std::nullopt, false, /*allow_unused=*/true);
    for (std::size_t k = 0; k < found.size(); ++k) {
      result[kInputsBefore + place[k]] = found[k];
    }
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recomputed(ModelPiece piece, const std::vector<at::Tensor>& activations,
                                   const std::vector<at::Tensor>& parameters, bool rests) {
  variable_list inputs = activations;
  for (const at::Tensor& parameter : parameters) {
    // The engine takes nodes in the reverse of their making, and a parameter's accumulation as soon as it is
    // ready: one node a parameter keeps the order that one node for all would lose.
    inputs.push_back(parameter.view_as(parameter));
  }
  return Recomputed::apply(holder_of(std::make_shared<ModelPiece>(std::move(piece))), at::TensorList(inputs), rests);
}

}  // namespace lockstep
