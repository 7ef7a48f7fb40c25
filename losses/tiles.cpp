// Two passes over tiles of candidates: pass 1 keeps energies alone, pass 2 computes each tile again with its
// graph and pulls the energies' gradient through it. What is differentiated above the energies (the softmax)
// is rows x candidates numbers; what is held at once of the head's activations is one tile's.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "losses/block.h"
#include "losses/held.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the backward pass needs beside tensors.
struct TileJob {
  std::shared_ptr<EnergyFunction> model;
  std::vector<int64_t> ids;
  int64_t tile_columns = 0;
  std::size_t row_tensors = 0;

  std::span<const int64_t> ids_of(int64_t first, int64_t count) const {
    return std::span<const int64_t>(ids).subspan(static_cast<std::size_t>(first),
                                                 static_cast<std::size_t>(count));
  }
  int64_t columns() const { return static_cast<int64_t>(ids.size()); }
  int64_t tile_at(int64_t first) const { return std::min(tile_columns, columns() - first); }
};

class Replay {
 public:
  Replay(EnergyFunction& model, std::vector<at::Tensor> parameters) : model_(model) {
    model_.begin_replay(std::move(parameters));
  }
  ~Replay() { model_.end_replay(); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

 private:
  EnergyFunction& model_;
};

at::Tensor leaf(const at::Tensor& tensor) {
  at::Tensor copy = tensor.detach();
  return copy.is_floating_point() ? copy.requires_grad_(true) : copy;
}

/// Sums over tiles of a low precision's gradients are float32 until they leave.
void add_to(at::Tensor& sum, const at::Tensor& term) {
  if (term.defined()) {
    const at::Tensor wide = in_loss_precision(term);
    sum = sum.defined() ? sum.add_(wide) : wide.clone();
  }
}

/// Inputs: the encoded rows' tensors, the encoded candidates, the head's parameters. Parameters are inputs so
/// that their gradients leave once and by the usual way, through their hooks to the reducer; inside, their
/// copies stand in for them.
class TiledEnergies : public torch::autograd::Function<TiledEnergies> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& holder, at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    context->saved_data["job"] = holder;
    const TileJob* const job = &held_by<TileJob>(holder);
    const EncodedRows rows{inputs.slice(0, job->row_tensors).vec()};
    const at::Tensor& action_ND = inputs[job->row_tensors];
    at::Tensor energy_BN = at::empty({rows.tensors.front().size(0), job->columns()}, action_ND.options());
    for (int64_t first = 0; first < job->columns(); first += job->tile_columns) {
      const int64_t count = job->tile_at(first);
      energy_BN.narrow(1, first, count)
          .copy_(job->model->energies(rows, action_ND.narrow(0, first, count), job->ids_of(first, count),
                                      first));
    }
    return energy_BN;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor holder = context->saved_data["job"].toTensor();
    TileJob* const job = &held_by<TileJob>(holder);
    const variable_list inputs = context->get_saved_variables();
    const c10::AutoGradMode with_graph(true);
    variable_list leaves;
    for (const at::Tensor& input : inputs) {
      leaves.push_back(leaf(input));
    }
    const std::size_t action = job->row_tensors;
    const Replay replay(*job->model,
                        {leaves.begin() + static_cast<std::ptrdiff_t>(action) + 1, leaves.end()});
    variable_list sums(1 + inputs.size());  // the job has no gradient
    sums[1 + action] = at::zeros_like(inputs[action]);
    for (int64_t first = 0; first < job->columns(); first += job->tile_columns) {
      const int64_t count = job->tile_at(first);
      leaves[action] = leaf(inputs[action].narrow(0, first, count));
      backward_tile(*job, leaves, first, gradients[0].narrow(1, first, count), sums);
    }
    return sums;
  }

 private:
  static void backward_tile(TileJob& job, const variable_list& leaves, int64_t first,
                            const at::Tensor& gradient_BT, variable_list& sums) {
    const EncodedRows rows{{leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(job.row_tensors)}};
    const at::Tensor& action_TD = leaves[job.row_tensors];
    const at::Tensor energy_BT =
        job.model->energies(rows, action_TD, job.ids_of(first, action_TD.size(0)), first);
    variable_list wanted;
    std::vector<std::size_t> place;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].requires_grad()) {
        wanted.push_back(leaves[i]);
        place.push_back(i);
      }
    }
    const variable_list found =
        torch::autograd::grad({energy_BT}, wanted, {gradient_BT}, std::nullopt, false, /*allow_unused=*/true);
    const c10::NoGradGuard no_grad;
    for (std::size_t k = 0; k < found.size(); ++k) {
      if (place[k] == job.row_tensors) {
        sums[1 + place[k]].narrow(0, first, action_TD.size(0)).copy_(found[k]);
      } else {
        add_to(sums[1 + place[k]], found[k]);
      }
    }
  }
};

}  // namespace

bool takes_tiles(const LossInput& input, std::size_t candidates) {
  return input.options.tile_columns < static_cast<int64_t>(candidates);
}

at::Tensor block_energies(const LossInput& input, const EncodedRows& rows, const at::Tensor& action_ND,
                          std::span<const int64_t> ids) {
  if (!takes_tiles(input, ids.size())) {
    return in_loss_precision(input.model.energies(rows, action_ND, ids, 0));
  }
  auto job = std::make_shared<TileJob>();
  job->model = input.model.shared_from_this();
  job->ids.assign(ids.begin(), ids.end());
  job->tile_columns = input.options.tile_columns;
  job->row_tensors = rows.tensors.size();
  variable_list inputs = rows.tensors;
  inputs.push_back(action_ND);
  for (const at::Tensor& parameter : input.model.head_parameters()) {
    inputs.push_back(parameter);
  }
  return in_loss_precision(TiledEnergies::apply(holder_of(std::move(job)), at::TensorList(inputs)));
}

}  // namespace lockstep
