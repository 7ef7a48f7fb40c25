#include "losses/infonce.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "losses/loss.h"

namespace lockstep {

InfoNce row_infonce(const at::Tensor& energy_BN, const at::Tensor& tau, const at::Tensor& target_B,
                    const at::Tensor& valid_N, const InfoNceOptions& options) {
  if (energy_BN.dim() != 2 || target_B.dim() != 1 || energy_BN.size(0) != target_B.size(0)) {
    throw std::invalid_argument(
        c10::str("row_infonce: energies ", energy_BN.sizes(), " do not fit targets ", target_B.sizes()));
  }
  if (valid_N.defined() && valid_N.numel() != energy_BN.size(1)) {
    throw std::invalid_argument(
        c10::str("row_infonce: energies ", energy_BN.sizes(), " do not fit valid columns ", valid_N.sizes()));
  }
  at::Tensor logits_BN = -energy_BN / tau;
  if (valid_N.defined()) {
    logits_BN = at::where(valid_N.unsqueeze(0), logits_BN, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor positive_B = logits_BN.gather(1, target_B.unsqueeze(1)).squeeze(1);
  InfoNce result;
  result.row_losses_B = at::logsumexp(logits_BN, 1) - positive_B;
  result.loss = result.row_losses_B.sum() * (options.world_size / options.total_rows);

  const c10::NoGradGuard no_grad;
  const at::Tensor energy = energy_BN.detach().to(at::kDouble);
  const double own = energy.gather(1, target_B.unsqueeze(1)).sum().item<double>();
  const at::Tensor counted = valid_N.defined() ? energy.masked_fill(~valid_N.unsqueeze(0), 0.0) : energy;
  const auto rows = static_cast<double>(energy_BN.size(0));
  const double columns =
      valid_N.defined() ? valid_N.sum().item<double>() : static_cast<double>(energy_BN.size(1));
  result.energy_positive = rows > 0 ? own / rows : 0;
  result.energy_negative =
      rows > 0 && columns > 1 ? (counted.sum().item<double>() - own) / (rows * (columns - 1)) : 0;
  return result;
}

namespace {

class InfoNceLoss : public Loss {
 public:
  LossOutput forward(const LossInput& input) override {
    const Candidates candidates = in_batch_candidates(input);
    const EncodedRows rows = input.model.encode_context();
    const at::Tensor energies =
        input.model.energies(rows, input.model.encode_action(candidates.action_NA), candidates.ids, 0);
    const at::Tensor target = at::arange(candidates.offset + input.first_row, candidates.offset + input.end_row, at::kLong);
    const double world = input.comm.world_size();
    InfoNce nce = row_infonce(energies, input.model.temperature(), target, {}, {world, input.total_rows});
    LossOutput output;
    output.loss = nce.loss;
    output.row_losses_B = nce.row_losses_B;
    output.row_weight = world / input.total_rows;
    output.energies = energies.detach();
    output.column_ids = candidates.ids;
    output.energy_positive = nce.energy_positive;
    output.energy_negative = nce.energy_negative;
    output.energies_computed = energies.numel();
    return output;
  }

  LossOutput reference(const ReferenceInput&) override { throw std::logic_error("not written yet"); }
};

}  // namespace

std::unique_ptr<Loss> make_infonce_loss() { return std::make_unique<InfoNceLoss>(); }

}  // namespace lockstep
