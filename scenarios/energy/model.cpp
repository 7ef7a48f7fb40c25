#include "scenarios/energy/model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>

namespace lockstep {

at::Tensor EnergyModel::draw(const std::string& name, at::IntArrayRef shape, int64_t fan_in,
                             at::Generator& generator) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return parameters_->add(name, at::empty(shape, at::kFloat).uniform_(-bound, bound, generator).to(dtype_));
}

EnergyModel::EnergyModel(const EnergyShape& shape, double temperature, int64_t seed, at::ScalarType dtype)
    : shape_(shape), dtype_(dtype) {
  const c10::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  const int64_t c = shape.channels;
  const int64_t d = shape.width;
  const int64_t w = shape.hidden;
  const int64_t a = shape.action_steps * c;
  context_in_w_ = draw("context_encoder.in.weight", {d, c}, c, generator);
  context_in_b_ = draw("context_encoder.in.bias", {d}, c, generator);
  context_place_ = draw("context_encoder.place", {shape.context_steps, d}, d, generator);
  context_out_w_ = draw("context_encoder.out.weight", {d, d}, d, generator);
  context_out_b_ = draw("context_encoder.out.bias", {d}, d, generator);
  summary_in_w_ = draw("context_encoder.summary_in.weight", {w, shape.context_steps * c},
                       shape.context_steps * c, generator);
  summary_in_b_ = draw("context_encoder.summary_in.bias", {w}, shape.context_steps * c, generator);
  summary_out_w_ = draw("context_encoder.summary_out.weight", {d, w}, w, generator);
  action_in_w_ = draw("action_encoder.in.weight", {w, a}, a, generator);
  action_in_b_ = draw("action_encoder.in.bias", {w}, a, generator);
  action_out_w_ = draw("action_encoder.out.weight", {d, w}, w, generator);
  action_out_b_ = draw("action_encoder.out.bias", {d}, w, generator);
  query_w_ = draw("energy_head.query.weight", {d, d}, d, generator);
  key_w_ = draw("energy_head.key.weight", {d, d}, d, generator);
  hidden_w_ = draw("energy_head.hidden.weight", {w, 3 * d}, 3 * d, generator);
  hidden_b_ = draw("energy_head.hidden.bias", {w}, 3 * d, generator);
  energy_w_ = draw("energy_head.energy.weight", {1, w}, w, generator);
  energy_b_ = draw("energy_head.energy.bias", {1}, w, generator);
  log_tau_ =
      parameters_->add("temperature.log_tau", at::full({}, std::log(temperature), at::kFloat).to(dtype_));
  // Drawn last, so that a model without an action head begins with the same numbers.
  for (int64_t layer = 0; layer < shape.action_layers; ++layer) {
    const std::string name = "action_head.layer" + std::to_string(layer);
    layer_w_.push_back(draw(name + ".weight", {d, d}, d, generator));
    layer_b_.push_back(draw(name + ".bias", {d}, d, generator));
  }
  if (shape.action_layers > 0) {
    readout_w_ = draw("action_head.readout.weight", {a, d}, d, generator);
    readout_b_ = draw("action_head.readout.bias", {a}, d, generator);
  }
}

EncodedContext EncodedContext::rows(int64_t first, int64_t count) const {
  return {steps_BSD.narrow(0, first, count), summary_B1D.narrow(0, first, count),
          mask_BS.narrow(0, first, count)};
}

EncodedContext EnergyModel::encode_context(const at::Tensor& context_BSC, const at::Tensor& mask_BS) const {
  const at::Tensor seen_BSC = at::where(mask_BS.unsqueeze(2), context_BSC.to(dtype_), 0.0);
  const at::Tensor step = at::tanh(at::linear(seen_BSC, context_in_w_, context_in_b_) + context_place_);
  const at::Tensor whole = at::tanh(at::linear(seen_BSC.flatten(1), summary_in_w_, summary_in_b_));
  return {at::linear(step, context_out_w_, context_out_b_), at::linear(whole, summary_out_w_).unsqueeze(1),
          mask_BS};
}

at::Tensor EnergyModel::encode_action(const at::Tensor& action_NA) const {
  return at::linear(at::tanh(at::linear(action_NA.to(dtype_), action_in_w_, action_in_b_)), action_out_w_,
                    action_out_b_);
}

at::Tensor EnergyModel::head(const EncodedContext& context, const at::Tensor& action_ND,
                             const at::Tensor& dropout_BNW) const {
  const at::Tensor key_BSD = at::linear(context.steps_BSD, key_w_);
  const at::Tensor query_ND = at::linear(action_ND, query_w_);
  return energies_of(context, at::matmul(key_BSD, query_ND.t()),
                     action_ND.unsqueeze(0).expand({key_BSD.size(0), action_ND.size(0), action_ND.size(1)}),
                     dropout_BNW);
}

at::Tensor EnergyModel::own_head(const EncodedContext& context, const at::Tensor& action_BnD,
                                 const at::Tensor& dropout_BnW) const {
  const at::Tensor key_BSD = at::linear(context.steps_BSD, key_w_);
  const at::Tensor query_BnD = at::linear(action_BnD, query_w_);
  return energies_of(context, at::bmm(key_BSD, query_BnD.transpose(1, 2)), action_BnD, dropout_BnW);
}

EncodedCandidates EnergyModel::encode_candidates(const at::Tensor& action_NA) const {
  const int64_t d = shape_.width;
  const at::Tensor action_ND = encode_action(action_NA);
  return {action_ND, at::linear(action_ND, query_w_), at::linear(action_ND, hidden_w_.narrow(1, d, d), hidden_b_)};
}

at::Tensor EnergyModel::scores(const EncodedContext& context, const EncodedCandidates& candidates) const {
  const int64_t d = shape_.width;
  const at::Tensor of_found = hidden_w_.narrow(1, 0, d), of_product = hidden_w_.narrow(1, 2 * d, d);
  const at::Tensor key_BSD = at::linear(context.steps_BSD, key_w_);
  const at::Tensor weight_BNS = attention(context, at::matmul(key_BSD, candidates.query_ND.t()));
  const at::Tensor product_BND =
      at::bmm(weight_BNS, context.steps_BSD).add_(context.summary_B1D).mul_(candidates.action_ND);
  at::Tensor hidden_BNW = at::linear(product_BND, of_product);
  hidden_BNW.baddbmm_(weight_BNS, at::linear(context.steps_BSD, of_found));
  hidden_BNW.add_(at::linear(context.summary_B1D, of_found)).add_(candidates.hidden_NW);
  return at::linear(at::silu_(hidden_BNW), energy_w_, energy_b_).squeeze(2);
}

at::Tensor EnergyModel::attention(const EncodedContext& context, const at::Tensor& score_BSN) const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape_.width));
  const at::Tensor masked_BSN =
      at::where(context.mask_BS.unsqueeze(2), score_BSN * scale, -std::numeric_limits<double>::infinity());
  return at::softmax(masked_BSN, 1).transpose(1, 2);
}

at::Tensor EnergyModel::energies_of(const EncodedContext& context, const at::Tensor& score_BSN,
                                    const at::Tensor& action_BND, const at::Tensor& dropout_BNW) const {
  const at::Tensor found_BND = at::bmm(attention(context, score_BSN), context.steps_BSD) + context.summary_B1D;
  const at::Tensor both = at::cat({found_BND, action_BND, found_BND * action_BND}, 2);
  at::Tensor hidden_BNW = at::silu(at::linear(both, hidden_w_, hidden_b_));
  if (dropout_BNW.defined()) {
    hidden_BNW = hidden_BNW * dropout_BNW;
  }
  return at::linear(hidden_BNW, energy_w_, energy_b_).squeeze(2);
}

std::vector<at::Tensor> EnergyModel::predict_actions(const EncodedContext& context) const {
  std::vector<at::Tensor> predictions;
  at::Tensor state_BD = context.summary_B1D.squeeze(1);
  for (std::size_t layer = 0; layer < layer_w_.size(); ++layer) {
    state_BD = state_BD + at::tanh(at::linear(state_BD, layer_w_[layer], layer_b_[layer]));
    predictions.push_back(at::linear(state_BD, readout_w_, readout_b_));
  }
  return predictions;
}

std::vector<at::Tensor*> EnergyModel::slots(ModelPart part) {
  switch (part) {
    case ModelPart::context_encoder:
      return {&context_in_w_, &context_in_b_,  &context_place_, &summary_in_w_,
              &summary_in_b_, &context_out_w_, &context_out_b_, &summary_out_w_};
    case ModelPart::action_encoder:
      return {&action_in_w_, &action_in_b_, &action_out_w_, &action_out_b_};
    case ModelPart::head:
      return {&key_w_, &query_w_, &hidden_w_, &hidden_b_, &energy_w_, &energy_b_};
  }
  return {};
}

std::vector<at::Tensor*> EnergyModel::slots() {
  std::vector<at::Tensor*> all;
  for (const ModelPart part : {ModelPart::context_encoder, ModelPart::action_encoder, ModelPart::head}) {
    for (at::Tensor* slot : slots(part)) {
      all.push_back(slot);
    }
  }
  for (std::size_t layer = 0; layer < layer_w_.size(); ++layer) {
    all.push_back(&layer_w_[layer]);
    all.push_back(&layer_b_[layer]);
  }
  if (!layer_w_.empty()) {
    all.push_back(&readout_w_);
    all.push_back(&readout_b_);
  }
  return all;
}

std::vector<at::Tensor> EnergyModel::parameters_of(ModelPart part) const {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor* slot : const_cast<EnergyModel*>(this)->slots(part)) {  // read alone
    parameters.push_back(*slot);
  }
  return parameters;
}

EnergyModel EnergyModel::with_parameters(ModelPart part, const std::vector<at::Tensor>& parameters) const {
  EnergyModel other = *this;
  std::size_t next = 0;
  for (at::Tensor* slot : other.slots(part)) {
    *slot = parameters.at(next++);
  }
  return other;
}

EnergyModel EnergyModel::cast(at::ScalarType dtype) const {
  EnergyModel other = *this;
  other.dtype_ = dtype;
  for (at::Tensor* slot : other.slots()) {
    *slot = slot->to(dtype);
  }
  return other;
}

at::Tensor EnergyModel::temperature() const { return at::exp(log_tau_); }

}  // namespace lockstep
