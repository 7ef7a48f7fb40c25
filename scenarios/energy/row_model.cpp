#include "scenarios/energy/row_model.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace lockstep {
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

}  // namespace lockstep
