#include "scenarios/energy/step_model.h"

#include <ATen/ATen.h>

#include "losses/recomputed.h"
#include "scenarios/energy/row_model.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

}  // namespace

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
  if (one_row_ && !own && !recomputes_ && !replay_) return row_head(model_, context, action, factors(false));
  const auto energies = [own, factors](const EnergyModel& model, const Tensors& inputs, bool again) {
    const EncodedContext rows{inputs[0], inputs[1], inputs[2]};
    return own ? model.own_head(rows, inputs[3], factors(again))
               : model.head(rows, inputs[3], factors(again));
  };
  // A head reads the encoded steps twice. Their gradient leaves it in one piece, kept or computed again, so
  // that with two heads it is added up in one order.
  const Tensors inputs{context.steps_BSD.alias(), context.summary_B1D, context.mask_BS, action};
  if (!recomputes_ || replay_) {
    return energies(replay_ ? *replay_ : model_, inputs, replay_.has_value());
  }
  const auto piece = [energies, model = model_](const Tensors& all, bool again) {
    return Tensors{
        energies(model.with_parameters(ModelPart::head, {all.begin() + 4, all.end()}), all, again)};
  };
  return recomputed(piece, inputs, model_.parameters_of(ModelPart::head)).front();
}

void StepModel::begin_replay(const std::vector<at::Tensor>& head_parameters) {
  replay_.emplace(model_.with_parameters(ModelPart::head, head_parameters));
}

}  // namespace lockstep
