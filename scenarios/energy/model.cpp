#include "scenarios/energy/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "losses/infonce.h"
#include "scenarios/energy/spec.h"

namespace lockstep {

using Tensors = std::vector<at::Tensor>;

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

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Operations inside a node are recorded by nobody.
using NothingRecorded = at::AutoDispatchBelowADInplaceOrView;

/// The gradient of a weight from that of its layer's output: PyTorch's for a weight that is multiplied transposed.
at::Tensor of_weight(const at::Tensor& gradient, const at::Tensor& input) { return at::mm(gradient.t(), input); }

/// What a gradient has more than its parameter, as a bias, whoever walks the graph sums up.
class RowContext : public torch::autograd::Function<RowContext> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& context_1SC, const at::Tensor& mask_1S,
                               at::TensorList weights) {
    const NothingRecorded guard;
    const at::Tensor &in_w = weights[0], &in_b = weights[1], &place = weights[2], &summary_in_w = weights[3],
                     &summary_in_b = weights[4], &out_w = weights[5], &out_b = weights[6], &summary_out_w = weights[7];
    const int64_t steps = context_1SC.size(1), width = out_w.size(0);
    const at::Tensor seen_1SC = at::where(mask_1S.unsqueeze(2), context_1SC.to(in_w.scalar_type()), 0.0);
    const at::Tensor seen_SC = seen_1SC.view({steps, seen_1SC.size(2)}), seen_1X = seen_1SC.flatten(1);
    const at::Tensor step_1SD = at::tanh(at::addmm(in_b, seen_SC, in_w.t()).view({1, steps, width}) + place);
    const at::Tensor whole_1W = at::tanh(at::addmm(summary_in_b, seen_1X, summary_in_w.t()));
    context->save_for_backward({seen_SC, seen_1X, step_1SD, whole_1W, out_w, summary_out_w});
    return {at::addmm(out_b, step_1SD.view({steps, width}), out_w.t()).view({1, steps, width}),
            at::mm(whole_1W, summary_out_w.t()).unsqueeze(1)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NothingRecorded guard;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &seen_SC = saved[0], &seen_1X = saved[1], &step_1SD = saved[2], &whole_1W = saved[3], &out_w = saved[4],
                     &summary_out_w = saved[5];
    const std::array<int64_t, 2> flat{step_1SD.size(1), step_1SD.size(2)};
    const at::Tensor summary_1D = gradients[1].squeeze(1), steps_SD = gradients[0].reshape(flat);
    const at::Tensor whole = at::tanh_backward(summary_1D.mm(summary_out_w), whole_1W);
    const at::Tensor step = at::tanh_backward(steps_SD.mm(out_w).view(step_1SD.sizes()), step_1SD);
    const at::Tensor step_SD = step.view(flat);
    return {{},
            {},
            of_weight(step_SD, seen_SC),
            step_SD,
            step,
            of_weight(whole, seen_1X),
            whole,
            of_weight(steps_SD, step_1SD.view(flat)),
            steps_SD,
            of_weight(summary_1D, whole_1W)};
  }
};

class RowAction : public torch::autograd::Function<RowAction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& action_NA, at::TensorList weights) {
    const NothingRecorded guard;
    const at::Tensor input_NA = action_NA.to(weights[0].scalar_type());
    const at::Tensor hidden_NW = at::tanh(at::addmm(weights[1], input_NA, weights[0].t()));
    context->save_for_backward({input_NA, hidden_NW, weights[2]});
    return at::addmm(weights[3], hidden_NW, weights[2].t());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NothingRecorded guard;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &input_NA = saved[0], &hidden_NW = saved[1], &out_w = saved[2], &out = gradients[0];
    const at::Tensor hidden = at::tanh_backward(out.mm(out_w), hidden_NW);
    return {{}, of_weight(hidden, input_NA), hidden, of_weight(out, hidden_NW), out};
  }
};

class RowHead : public torch::autograd::Function<RowHead> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& steps_1SD, const at::Tensor& summary_11D,
                            const at::Tensor& mask_1S, const at::Tensor& action_ND, const std::optional<at::Tensor>& dropout,
                            at::TensorList weights) {
    const NothingRecorded guard;
    const at::Tensor dropout_1NW = dropout.value_or(at::Tensor());
    const at::Tensor &key_w = weights[0], &query_w = weights[1], &hidden_w = weights[2], &hidden_b = weights[3],
                     &energy_w = weights[4], &energy_b = weights[5];
    const int64_t steps = steps_1SD.size(1), width = steps_1SD.size(2), candidates = action_ND.size(0);
    const at::Tensor key_SD = at::mm(steps_1SD.reshape({steps, width}), key_w.t()), query_ND = at::mm(action_ND, query_w.t());
    const at::Tensor score_1SN =
        at::where(mask_1S.unsqueeze(2), at::mm(key_SD, query_ND.t()).view({1, steps, candidates}) * scale(width),
                  -std::numeric_limits<double>::infinity());
    const at::Tensor weight_1SN = at::softmax(score_1SN, 1);
    const at::Tensor found_1ND = at::bmm(weight_1SN.transpose(1, 2), steps_1SD) + summary_11D;
    const at::Tensor action_1ND = action_ND.unsqueeze(0);
    const at::Tensor both_NX = at::cat({found_1ND, action_1ND, found_1ND * action_1ND}, 2).view({candidates, 3 * width});
    const at::Tensor in_NW = at::addmm(hidden_b, both_NX, hidden_w.t());
    at::Tensor hidden_NW = at::silu(in_NW);
    if (dropout_1NW.defined()) hidden_NW = hidden_NW * dropout_1NW.squeeze(0);
    context->save_for_backward({steps_1SD, mask_1S, action_ND, dropout_1NW, key_SD, query_ND, weight_1SN, found_1ND, both_NX, in_NW,
                                hidden_NW, key_w, query_w, hidden_w, energy_w});
    return at::addmm(energy_b, hidden_NW, energy_w.t()).view({1, candidates});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NothingRecorded guard;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &steps_1SD = saved[0], &mask_1S = saved[1], &action_ND = saved[2], &dropout_1NW = saved[3], &key_SD = saved[4],
                     &query_ND = saved[5], &weight_1SN = saved[6], &found_1ND = saved[7], &both_NX = saved[8], &in_NW = saved[9],
                     &hidden_NW = saved[10], &key_w = saved[11], &query_w = saved[12], &hidden_w = saved[13], &energy_w = saved[14];
    const int64_t steps = steps_1SD.size(1), width = steps_1SD.size(2), candidates = action_ND.size(0);
    const at::Tensor energy_N1 = gradients[0].reshape({candidates, 1});
    at::Tensor hidden = energy_N1.mm(energy_w);
    if (dropout_1NW.defined()) hidden = hidden * dropout_1NW.squeeze(0);
    const at::Tensor in = at::silu_backward(hidden, in_NW);
    const at::Tensor both_1NX = in.mm(hidden_w).view({1, candidates, 3 * width});
    const auto part = [&](int64_t k) {
      return both_1NX.as_strided({1, candidates, width}, {candidates * 3 * width, 3 * width, 1}, k * width);
    };
    const at::Tensor product = part(2);
    const at::Tensor found = part(0) + product * action_ND.unsqueeze(0);
    const at::Tensor action = part(1) + product * found_1ND;
    const at::Tensor weight_1SN_gradient = found.bmm(steps_1SD.transpose(1, 2)).transpose(1, 2);
    const at::Tensor softmax = at::_softmax_backward_data(weight_1SN_gradient, weight_1SN, 1, weight_1SN.scalar_type());
    const at::Tensor score_SN = (at::where(mask_1S.unsqueeze(2), softmax, 0) * scale(width)).reshape({steps, candidates});
    const at::Tensor key = score_SN.mm(query_ND), query = of_weight(score_SN, key_SD);
    return {weight_1SN.bmm(found) + key.mm(key_w).view(steps_1SD.sizes()),
            found,
            {},
            action.squeeze(0) + query.mm(query_w),
            {},
            of_weight(key, steps_1SD.reshape({steps, width})),
            of_weight(query, action_ND),
            of_weight(in, both_NX),
            in,
            of_weight(energy_N1, hidden_NW),
            energy_N1};
  }

 private:
  static double scale(int64_t width) { return 1.0 / std::sqrt(static_cast<double>(width)); }
};

}  // namespace

EncodedContext encode_row_context(const EnergyModel& model, const at::Tensor& context_1SC, const at::Tensor& mask_1S) {
  if (context_1SC.requires_grad()) return model.encode_context(context_1SC, mask_1S);
  const variable_list out = RowContext::apply(context_1SC, mask_1S, at::TensorList(model.parameters_of(ModelPart::context_encoder)));
  return {out[0], out[1], mask_1S};
}

at::Tensor encode_row_action(const EnergyModel& model, const at::Tensor& action_NA) {
  if (action_NA.requires_grad()) return model.encode_action(action_NA);
  return RowAction::apply(action_NA, at::TensorList(model.parameters_of(ModelPart::action_encoder)));
}

at::Tensor row_head(const EnergyModel& model, const EncodedContext& context, const at::Tensor& action_ND,
                    const at::Tensor& dropout_1NW) {
  // A node takes an undefined tensor as an optional one alone.
  return RowHead::apply(context.steps_BSD, context.summary_B1D, context.mask_BS, action_ND, std::optional<at::Tensor>(dropout_1NW),
                        at::TensorList(model.parameters_of(ModelPart::head)));
}

StepModel::StepModel(const RunConfig& config, const EnergyModel& model, bool one_row)
    : recomputes_(energy(config).activation_checkpointing),
      one_row_(one_row),
      model_(computed_precision(config) == Precision::bfloat16 ? model.cast(at::kBFloat16) : model) {}

EncodedContext StepModel::encode_context(const at::Tensor& context_BSC, const at::Tensor& mask_BS) const {
  if (!recomputes_) {
    return one_row_ ? encode_row_context(model_, context_BSC, mask_BS) : model_.encode_context(context_BSC, mask_BS);
  }
  const auto piece = [model = model_](const Tensors& inputs, bool) {
    const EncodedContext encoded =
        model.with_parameters(ModelPart::context_encoder, {inputs.begin() + 2, inputs.end()})
            .encode_context(inputs[0], inputs[1]);
    return Tensors{encoded.steps_BSD, encoded.summary_B1D};
  };
  const Tensors out =
      recomputed(piece, {context_BSC, mask_BS}, model_.parameters_of(ModelPart::context_encoder));
  return {out[0], out[1], mask_BS};
}

at::Tensor StepModel::encode_action(const at::Tensor& action_NA) const {
  if (!recomputes_) {
    return one_row_ ? encode_row_action(model_, action_NA) : model_.encode_action(action_NA);
  }
  const auto piece = [model = model_](const Tensors& inputs, bool) {
    return Tensors{model.with_parameters(ModelPart::action_encoder, {inputs.begin() + 1, inputs.end()})
                       .encode_action(inputs[0])};
  };
  return recomputed(piece, {action_NA}, model_.parameters_of(ModelPart::action_encoder)).front();
}

at::Tensor StepModel::head(const EncodedContext& context, const at::Tensor& action, bool own,
                           const Factors& factors) const {
  const int64_t rows = context.summary_B1D.size(0);
  if (one_row_ && !own && !recomputes_ && !replay_) return row_head(model_, context, action, factors(0, rows, false));
  const auto energies = [own, factors](const EnergyModel& model, const Tensors& inputs, int64_t first, bool again) {
    const EncodedContext some{inputs[0], inputs[1], inputs[2]};
    const at::Tensor drawn = factors(first, inputs[1].size(0), again);
    return own ? model.own_head(some, inputs[3], drawn) : model.head(some, inputs[3], drawn);
  };
  // A head reads the encoded steps twice. Their gradient leaves it in one piece, kept or computed again, so
  // that with two heads it is added up in one order.
  const Tensors inputs{context.steps_BSD.alias(), context.summary_B1D, context.mask_BS, action};
  const EnergyShape& shape = model_.shape();
  const int64_t part =
      rows_at_once(rows, action.size(own ? 1 : 0), numbers_of_pair(shape.width, shape.hidden, shape.context_steps));
  if (replay_ || (!recomputes_ && part >= rows)) {
    return energies(replay_ ? *replay_ : model_, inputs, 0, replay_.has_value());
  }
  const Tensors parameters = model_.parameters_of(ModelPart::head);
  Tensors parts;
  for (int64_t first = 0; first < std::max<int64_t>(rows, 1); first += std::max<int64_t>(part, 1)) {
    Tensors of_part = inputs;
    for (std::size_t i = 0; i < of_part.size() && part < rows; ++i) {
      if (i < 3 || own) of_part[i] = of_part[i].narrow(0, first, std::min(part, rows - first));
    }
    const auto piece = [energies, first, model = model_, replays = recomputes_](const Tensors& all, bool again) {
      return Tensors{
          energies(model.with_parameters(ModelPart::head, {all.begin() + 4, all.end()}), all, first, again && replays)};
    };
    parts.push_back(recomputed(piece, of_part, parameters, /*rests=*/first > 0).front());
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

void StepModel::begin_replay(const std::vector<at::Tensor>& head_parameters) {
  replay_.emplace(model_.with_parameters(ModelPart::head, head_parameters));
}

namespace {

PairTensors to_tensors(const Windows& windows) {
  const auto pairs = static_cast<int64_t>(windows.size());
  PairTensors tensors;
  tensors.context_PSC = at::empty({pairs, windows.context_steps, windows.channels}, at::kFloat);
  tensors.mask_PS = at::empty({pairs, windows.context_steps}, at::kBool);
  tensors.action_PA =
      at::empty({pairs, static_cast<int64_t>(windows.action_steps) * windows.channels}, at::kFloat);
  std::memcpy(tensors.context_PSC.mutable_data_ptr(), windows.contexts.data(), tensors.context_PSC.nbytes());
  std::memcpy(tensors.mask_PS.mutable_data_ptr(), windows.context_mask.data(), tensors.mask_PS.nbytes());
  std::memcpy(tensors.action_PA.mutable_data_ptr(), windows.actions.data(), tensors.action_PA.nbytes());
  return tensors;
}

PairTensors select(const PairTensors& pairs, const std::vector<int64_t>& places) {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(places), at::kLong);
  return {pairs.context_PSC.index_select(0, index), pairs.mask_PS.index_select(0, index),
          pairs.action_PA.index_select(0, index)};
}

}  // namespace

TrainingPairs::TrainingPairs(const Dataset& dataset, bool cached)
    : cached_(to_tensors(dataset.train)), cutter_(cached ? nullptr : dataset.training_pairs) {}

int64_t TrainingPairs::size() const { return cutter_ == nullptr ? cached_.size() : cutter_->size(); }

PairTensors TrainingPairs::rows(const std::vector<int64_t>& ids) const {
  return cutter_ == nullptr ? select(cached_, ids) : to_tensors(cutter_->cut(ids));
}

PreparedPairs::PreparedPairs(const TrainingPairs& pairs, const std::vector<int64_t>& ids)
    : pairs_(pairs.rows(ids)) {
  for (std::size_t place = 0; place < ids.size(); ++place) {
    place_of_[ids[place]] = static_cast<int64_t>(place);
  }
}

bool PreparedPairs::rows(const std::vector<int64_t>& ids, PairTensors& out) const {
  std::vector<int64_t> places;
  for (const int64_t id : ids) {
    const auto found = place_of_.find(id);
    if (found == place_of_.end()) {
      return false;
    }
    places.push_back(found->second);
  }
  out = select(pairs_, places);
  return true;
}

EnergyData make_energy_data(const Dataset& dataset, const WindowConfig& config) {
  return {TrainingPairs(dataset, config.cache), to_tensors(dataset.holdout), to_tensors(dataset.test)};
}

}  // namespace lockstep
