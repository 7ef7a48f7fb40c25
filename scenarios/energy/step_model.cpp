#include "scenarios/energy/step_model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "losses/recomputed.h"
#include "scenarios/energy/parts.h"
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

}  // namespace lockstep
