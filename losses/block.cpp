#include "losses/block.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "losses/loss.h"

namespace lockstep {

static bool takes_tiles(const LossInput& input, std::size_t candidates);

at::Tensor valid_candidates(const LossInput& input, const Candidates& candidates,
                            const at::Tensor& target_B) {
  if (!input.options.mask_duplicates) {
    return {};
  }
  const at::Tensor all = at::tensor(at::ArrayRef<int64_t>(candidates.ids), at::kLong);
  const at::Tensor own = all.index_select(0, target_B);
  const at::Tensor column = at::arange(all.numel(), at::kLong);
  return (own.unsqueeze(1) != all.unsqueeze(0)).logical_or(target_B.unsqueeze(1) == column.unsqueeze(0));
}

at::Tensor in_loss_precision(const at::Tensor& energies) {
  return energies.scalar_type() == at::kBFloat16 ? energies.to(at::kFloat) : energies;
}

Block make_block(const LossInput& input) {
  Block block;
  block.candidates = in_batch_candidates(input);
  block.rows = input.model.encode_context();
  block.energy_BN = block_energies(input, block.rows, input.model.encode_action(block.candidates.action_NA),
                                   block.candidates.ids);
  block.target_B = target_columns(input, block.candidates);
  block.valid_BN = valid_candidates(input, block.candidates, block.target_B);
  if (input.counted_B.defined()) {
    block.counted_B = input.counted_B.narrow(0, input.first_row, input.end_row - input.first_row);
  }
  block.tiled = takes_tiles(input, block.candidates.ids.size());
  return block;
}

LossOutput make_output(const LossInput& input, const at::Tensor& counted_B, const at::Tensor& row_losses_B) {
  LossOutput output;
  output.row_losses_B = counted_B.defined() ? at::where(counted_B, row_losses_B, 0.0) : row_losses_B;
  output.row_weight = input.total_rows > 0 ? input.comm.world_size() / input.total_rows : 0.0;
  if (input.shared != nullptr) output.row_weight = 1;
  const bool one_row = input.shared != nullptr && input.end_row - input.first_row == 1;
  output.loss = one_row ? output.row_losses_B.squeeze(0) : output.row_losses_B.sum();
  if (output.row_weight != 1) output.loss = output.loss * output.row_weight;
  return output;
}

EnergyMeans energy_means(const at::Tensor& energy_BN, const at::Tensor& target_B, const at::Tensor& valid) {
  const at::AutoDispatchBelowADInplaceOrView guard;  // without gradient
  const at::Tensor energy = energy_BN.to(at::kDouble).contiguous();
  const bool one_row = energy.size(0) == 1;
  const double own = one_row ? energy.const_data_ptr<double>()[target_B.const_data_ptr<int64_t>()[0]]
                             : energy.gather(1, target_B.unsqueeze(1)).sum().item<double>();
  at::Tensor among = energy;
  const auto rows = static_cast<double>(energy.size(0));
  double pairs = rows * static_cast<double>(energy.size(1));
  if (valid.defined()) {
    among = energy.masked_fill(valid.dim() == 1 ? ~valid.unsqueeze(0) : ~valid, 0.0);
    pairs = valid.sum().item<double>() * (valid.dim() == 1 ? rows : 1.0);
  }
  EnergyMeans means;
  if (rows > 0) {
    means.positive = own / rows;
    means.negative = pairs > rows ? (among.sum().item<double>() - own) / (pairs - rows) : 0.0;
  }
  return means;
}

void describe_block(const Block& block, LossOutput& output) {
  output.energies = block.energy_BN.detach();
  output.column_ids = block.candidates.ids;
  const EnergyMeans means = energy_means(block.energy_BN, block.target_B, block.valid_BN);
  output.energy_positive = means.positive;
  output.energy_negative = means.negative;
  output.energies_computed += block.energy_BN.numel() * (block.tiled ? 2 : 1);
  output.replayed = block.tiled;
  if (const int64_t rows = block.energy_BN.size(0); rows > 0) {
    const double candidates = block.valid_BN.defined()
                                  ? block.valid_BN.sum().item<double>() / static_cast<double>(rows)
                                  : static_cast<double>(block.energy_BN.size(1));
    output.negatives_in_batch = candidates - 1;
  }
}

void require_in_batch(const LossOptions& options, const at::Tensor& explicit_BnA, const char* why) {
  if (!options.in_batch || explicit_BnA.defined()) {
    throw std::invalid_argument(why);
  }
}

// Two passes over tiles of candidates: pass 1 keeps energies alone, pass 2 computes each tile again with its
// graph and pulls the energies' gradient through it. What is differentiated above the energies (the softmax)
// is rows x candidates numbers; what is held at once of the head's activations is one tile's.
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
    // One node a parameter keeps the order in which gradients become ready: see losses/recomputed.h.
    inputs.push_back(parameter.view_as(parameter));
  }
  return in_loss_precision(TiledEnergies::apply(holder_of(std::move(job)), at::TensorList(inputs)));
}

namespace {

std::vector<int64_t> values_of(const at::Tensor& int64s) {
  const at::Tensor flat = int64s.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

at::Tensor int64s(std::span<const int64_t> values) {
  return at::tensor(at::ArrayRef<int64_t>(values.data(), values.size()), at::kLong);
}

}  // namespace

at::Tensor target_columns(const LossInput& input, const Candidates& candidates) {
  if (candidates.own_columns.empty()) {
    return at::arange(candidates.offset + input.first_row, candidates.offset + input.end_row, at::kLong);
  }
  return int64s(std::span<const int64_t>(candidates.own_columns)
                    .subspan(static_cast<std::size_t>(input.first_row),
                             static_cast<std::size_t>(input.end_row - input.first_row)));
}

Candidates candidates_in_batch_order(const LossInput& input, std::span<const int64_t> positions) {
  std::vector<at::Tensor> sent{input.action_BA, int64s(input.ids), int64s(positions)};
  if (input.counted_B.defined()) sent.push_back(input.counted_B);
  const GatheredRows gathered = gather_rows(input.comm, sent, input.step, "loss.candidates");
  const int64_t most = gathered.valid.numel() / input.comm.world_size();
  const std::vector<int64_t> position = values_of(gathered.columns[2]);
  const auto* valid = gathered.valid.const_data_ptr<bool>();
  std::vector<int64_t> order;
  for (int64_t place = 0; place < gathered.valid.numel(); ++place) {
    if (valid[place]) order.push_back(place);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return position[static_cast<std::size_t>(a)] < position[static_cast<std::size_t>(b)];
  });
  const at::Tensor index = int64s(order);
  Candidates candidates{gathered.columns[0].index_select(0, index),
                        values_of(gathered.columns[1].index_select(0, index)), 0};
  if (input.counted_B.defined()) candidates.counted_N = gathered.columns[3].index_select(0, index);
  candidates.own_columns.resize(input.ids.size());
  for (std::size_t column = 0; column < order.size(); ++column) {
    const auto owner = static_cast<int>(order[column] / most);
    candidates.owners.push_back(owner);
    if (owner == input.comm.rank()) {
      candidates.own_columns[static_cast<std::size_t>(order[column] % most)] = static_cast<int64_t>(column);
    }
  }
  return candidates;
}

Candidates in_batch_candidates(const LossInput& input) {
  if (input.shared != nullptr && !input.options.local) {
    return input.shared->candidates;
  }
  if (input.options.local || input.comm.world_size() == 1) {
    return {input.action_BA, {input.ids.begin(), input.ids.end()}, 0, input.counted_B};
  }
  const at::Tensor ids = at::tensor(at::ArrayRef<int64_t>(input.ids.data(), input.ids.size()), at::kLong);
  std::vector<at::Tensor> sent{input.action_BA, ids};
  if (input.counted_B.defined()) {
    sent.push_back(input.counted_B);
  }
  const GatheredRows gathered = gather_rows(input.comm, sent, input.step, "loss.candidates");
  Candidates candidates{gathered.columns[0], {}, gathered.offset};
  if (input.counted_B.defined()) {
    candidates.counted_N = gathered.columns[2];
  }
  at::Tensor all_ids = gathered.columns[1];
  if (gathered.total_rows != gathered.valid.numel()) {
    // Ranks with fewer rows were padded for the gather alone: nothing is computed for the padding.
    const at::Tensor kept = gathered.valid.nonzero().squeeze(1);
    candidates.action_NA = candidates.action_NA.index_select(0, kept);
    all_ids = all_ids.index_select(0, kept);
    if (candidates.counted_N.defined()) {
      candidates.counted_N = candidates.counted_N.index_select(0, kept);
    }
    candidates.offset = gathered.valid.narrow(0, 0, gathered.offset).sum().item<int64_t>();
  }
  candidates.ids.assign(all_ids.const_data_ptr<int64_t>(),
                        all_ids.const_data_ptr<int64_t>() + all_ids.numel());
  return candidates;
}

}  // namespace lockstep
