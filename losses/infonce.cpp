#include "losses/infonce.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

#include "losses/block.h"
#include "losses/reference.h"

namespace lockstep {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor infonce_row_losses(const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                              const at::Tensor& valid_N, const TermMark& mark) {
  if (energy_BN.dim() != 2 || target_B.dim() != 1 || energy_BN.size(0) != target_B.size(0)) {
    throw std::invalid_argument(
        c10::str("row_infonce: energies ", energy_BN.sizes(), " do not fit targets ", target_B.sizes()));
  }
  if (valid_N.defined() && valid_N.sizes() != energy_BN.sizes() &&
      (valid_N.dim() != 1 || valid_N.numel() != energy_BN.size(1))) {
    throw std::invalid_argument(
        c10::str("row_infonce: energies ", energy_BN.sizes(), " do not fit valid columns ", valid_N.sizes()));
  }
  at::Tensor logits_BN = -energy_BN / tau;
  if (valid_N.defined()) {
    logits_BN = at::where(valid_N.dim() == 1 ? valid_N.unsqueeze(0) : valid_N, logits_BN, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor positive_B = logits_BN.gather(1, target_B.unsqueeze(1)).squeeze(1);
  return at::logsumexp(marked(mark, logits_BN), 1) - marked(mark, positive_B);
}

namespace {

class InfoNceRowLosses : public torch::autograd::Function<InfoNceRowLosses> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                            const std::optional<at::Tensor>& valid) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor valid_BN = valid.value_or(at::Tensor());
    if (valid_BN.defined() && valid_BN.dim() == 1) valid_BN = valid_BN.unsqueeze(0);
    const at::Tensor all_BN = -energy_BN / tau, target_B1 = target_B.unsqueeze(1);
    const at::Tensor logits_BN =
        valid_BN.defined() ? at::where(valid_BN, all_BN, -std::numeric_limits<double>::infinity()) : all_BN;
    const at::Tensor sum_B = at::logsumexp(logits_BN, 1);
    context->save_for_backward({all_BN, logits_BN, sum_B, tau, target_B1, valid_BN});
    return sum_B - logits_BN.gather(1, target_B1).squeeze(1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &all_BN = saved[0], &logits_BN = saved[1], &sum_B = saved[2], &tau = saved[3], &target_B1 = saved[4],
                     &valid_BN = saved[5], loss_B1 = gradients[0].unsqueeze(1);
    const at::Tensor positive_BN = at::zeros_like(logits_BN).scatter_add_(1, target_B1, -loss_B1);
    at::Tensor logits = positive_BN + loss_B1 * (logits_BN - sum_B.unsqueeze(1)).exp();
    if (valid_BN.defined()) logits = at::where(valid_BN, logits, 0);
    return {-(logits / tau), -logits * (all_BN / tau), {}, {}};
  }
};

}  // namespace

at::Tensor infonce_row_losses_in_one(const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                                     const at::Tensor& valid_N) {
  return InfoNceRowLosses::apply(energy_BN, tau, target_B, std::optional<at::Tensor>(valid_N));
}

at::Tensor infonce_row_losses(const LossInput& input, const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                              const at::Tensor& valid_N) {
  return input.shared != nullptr && !input.mark ? infonce_row_losses_in_one(energy_BN, tau, target_B, valid_N)
                                                : infonce_row_losses(energy_BN, tau, target_B, valid_N, input.mark);
}

InfoNce row_infonce(const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                    const at::Tensor& valid_N, const InfoNceOptions& options) {
  InfoNce result;
  result.row_losses_B = infonce_row_losses(energy_BN, tau, target_B, valid_N);
  result.loss = result.row_losses_B.sum() * (options.world_size / options.total_rows);
  const EnergyMeans means = energy_means(energy_BN, target_B, valid_N);
  result.energy_positive = means.positive;
  result.energy_negative = means.negative;
  return result;
}

namespace {

at::Tensor own_energies(const LossInput& input, const EncodedRows& rows, const at::Tensor& action_BnA,
                        int64_t first_id) {
  const at::Tensor encoded = input.model.encode_action(action_BnA.flatten(0, 1));
  return in_loss_precision(input.model.own_energies(
      rows, encoded.reshape({action_BnA.size(0), action_BnA.size(1), encoded.size(1)}), first_id));
}

void add_explicit_ids(int64_t count, LossOutput& output) {
  for (int64_t k = 0; k < count; ++k) {
    output.column_ids.push_back(-2 - k);
  }
  output.negatives_explicit = static_cast<double>(count);
}

class InfoNceLoss : public Loss {
 public:
  LossOutput forward(const LossInput& input) override {
    if (!input.options.in_batch) {
      return of_explicit(input);
    }
    const Block block = make_block(input);
    return input.explicit_BnA.defined() ? of_both(input, block) : of_batch(input, block);
  }

  LossOutput reference(const ReferenceInput& input) override {
    const ReferenceBlock block = reference_block(input);
    std::vector<at::Tensor> losses;
    for (int64_t i = 0; i < block.rows(); ++i) {
      const std::vector<int64_t>& negatives = block.negatives[static_cast<std::size_t>(i)];
      at::Tensor logits = block.logits(i, negatives);
      if (block.explicit_logit_Bn.defined()) {
        at::Tensor own = block.explicit_logit_Bn.select(0, i);
        if (input.options.in_batch) {
          const auto weight = [](double declared, double count) { return std::log(declared / count); };
          const double in_batch = static_cast<double>(negatives.size());
          logits = in_batch == 0 ? logits
                                 : at::cat({logits.narrow(0, 0, 1), logits.narrow(0, 1, logits.numel() - 1) +
                                                                        weight(kInBatchWeight, in_batch)});
          own = own + weight(kExplicitWeight, static_cast<double>(own.numel()));
        }
        logits = at::cat({logits, own});
      }
      losses.push_back(log_sum_exp(logits) - block.logit(i, i));
    }
    LossOutput output = reference_output(input, block, losses);
    output.chance_nats = chance(input.options.in_batch, output);
    return output;
  }

 private:
  static double chance(bool in_batch, const LossOutput& output) {
    if (in_batch && output.negatives_explicit > 0) {
      return std::log(1 + (output.negatives_in_batch > 0 ? kInBatchWeight : 0) + kExplicitWeight);
    }
    return std::log(1 + output.negatives_in_batch + output.negatives_explicit);
  }

  static LossOutput of_batch(const LossInput& input, const Block& block) {
    LossOutput output = make_output(
        input, block.counted_B,
        infonce_row_losses(input, block.energy_BN, input.model.temperature(), block.target_B, block.valid_BN));
    describe_block(block, output);
    output.chance_nats = chance(true, output);
    return output;
  }

  /// Each row's own action against candidates of its own: nothing depends on the other rows.
  static LossOutput of_explicit(const LossInput& input) {
    const int64_t rows = input.end_row - input.first_row;
    const at::Tensor own_B1A = input.action_BA.narrow(0, input.first_row, rows).unsqueeze(1);
    const EncodedRows encoded = input.model.encode_context();
    const at::Tensor energies = own_energies(input, encoded, at::cat({own_B1A, input.explicit_BnA}, 1), -1);
    const at::Tensor target = at::zeros({rows}, at::kLong);
    const at::Tensor counted =
        input.counted_B.defined() ? input.counted_B.narrow(0, input.first_row, rows) : at::Tensor();
    LossOutput output =
        make_output(input, counted, infonce_row_losses(input, energies, input.model.temperature(), target, {}));
    output.column_ids = {-1};
    add_explicit_ids(input.explicit_BnA.size(1), output);
    output.energies = energies.detach();
    const EnergyMeans means = energy_means(energies, target, {});
    output.energy_positive = means.positive;
    output.energy_negative = means.negative;
    output.energies_computed = energies.numel();
    output.chance_nats = chance(false, output);
    return output;
  }

  /// In-batch and explicit negatives in one softmax, each group with its declared weight.
  static LossOutput of_both(const LossInput& input, const Block& block) {
    const at::Tensor tau = input.model.temperature();
    const at::Tensor explicit_Bn = own_energies(input, block.rows, input.explicit_BnA, -2);
    const at::Tensor column = at::arange(block.energy_BN.size(1), at::kLong);
    at::Tensor negative_BN = block.target_B.unsqueeze(1) != column.unsqueeze(0);
    if (block.valid_BN.defined()) {
      negative_BN = negative_BN.logical_and(block.valid_BN);
    }
    const at::Tensor logit_BN = -block.energy_BN / tau;
    const at::Tensor positive_B1 = logit_BN.gather(1, block.target_B.unsqueeze(1));
    const at::Tensor count_B1 = negative_BN.sum(1, true).clamp_min(1).to(logit_BN.scalar_type());
    const at::Tensor in_batch_BN =
        at::where(negative_BN, logit_BN, -std::numeric_limits<double>::infinity()) + (std::log(kInBatchWeight) - at::log(count_B1));
    const auto count = static_cast<double>(explicit_Bn.size(1));
    const at::Tensor logits = at::cat(
        {positive_B1, in_batch_BN, -explicit_Bn / tau + (std::log(kExplicitWeight) - std::log(count))}, 1);
    LossOutput output =
        make_output(input, block.counted_B,
                    at::logsumexp(marked(input.mark, logits), 1) - marked(input.mark, positive_B1).squeeze(1));
    describe_block(block, output);
    add_explicit_ids(explicit_Bn.size(1), output);
    output.energies = at::cat({block.energy_BN.detach(), explicit_Bn.detach()}, 1);
    output.energies_computed += explicit_Bn.numel();
    const at::Tensor valid = block.valid_BN.defined() ? block.valid_BN : at::ones_like(negative_BN);
    const EnergyMeans means =
        energy_means(output.energies, block.target_B,
                     at::cat({valid, at::ones({valid.size(0), explicit_Bn.size(1)}, at::kBool)}, 1));
    output.energy_positive = means.positive;
    output.energy_negative = means.negative;
    output.chance_nats = chance(true, output);
    return output;
  }
};

}  // namespace

std::unique_ptr<Loss> make_infonce_loss() { return std::make_unique<InfoNceLoss>(); }

namespace {

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
