#include "losses/cross_entropy.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

void require_fitting(const CrossEntropyInput& input) {
  const at::Tensor& logits = input.logits_BTK;
  const bool fits = logits.dim() == 3 && input.target_BT.dim() == 2 && input.valid_BT.dim() == 2 &&
                    input.target_BT.sizes() == logits.sizes().slice(0, 2) &&
                    input.valid_BT.sizes() == logits.sizes().slice(0, 2);
  if (!fits) {
    throw std::invalid_argument(c10::str("cross_entropy: logits ", logits.sizes(), " do not fit targets ",
                                         input.target_BT.sizes(), " and valid steps ", input.valid_BT.sizes()));
  }
}

/// A loss divides, sums and takes logarithms in no less than float32.
at::Tensor wide(const at::Tensor& logits) {
  return logits.scalar_type() == at::kBFloat16 ? logits.to(at::kFloat) : logits;
}

}  // namespace

at::Tensor cross_entropy_row_sums(const CrossEntropyInput& input) {
  require_fitting(input);
  // Masked on both sides: a padded step's logits may be no numbers, and nothing times 0 makes a number of them.
  const at::Tensor logits_BTK = at::where(input.valid_BT.unsqueeze(2), wide(marked(input.mark, input.logits_BTK)), 0.0);
  const at::Tensor target_BT = at::where(input.valid_BT, input.target_BT, 0);
  const at::Tensor log_p_BTK = at::log_softmax(logits_BTK, 2);
  at::Tensor loss_BT = -log_p_BTK.gather(2, target_BT.unsqueeze(2)).squeeze(2);
  if (input.label_smoothing > 0) {
    loss_BT = loss_BT * (1 - input.label_smoothing) - log_p_BTK.mean(2) * input.label_smoothing;
  }
  return at::where(input.valid_BT, loss_BT, 0.0).sum(1);
}

at::Tensor cross_entropy_row_sums_by_definition(const CrossEntropyInput& input) {
  require_fitting(input);
  const int64_t classes = input.logits_BTK.size(2);
  const at::Tensor all_BTK = wide(marked(input.mark, input.logits_BTK));
  std::vector<at::Tensor> sums;
  for (int64_t row = 0; row < input.logits_BTK.size(0); ++row) {
    const at::Tensor counting_n = at::nonzero(input.valid_BT[row]).flatten();
    const at::Tensor logits_nK = all_BTK[row].index_select(0, counting_n);
    const at::Tensor target_n1 = input.target_BT[row].index_select(0, counting_n).unsqueeze(1);
    const at::Tensor hit_nK = target_n1 == at::arange(classes, at::kLong).unsqueeze(0);
    const at::Tensor wanted_nK = hit_nK.to(logits_nK.scalar_type()) * (1 - input.label_smoothing) +
                                 input.label_smoothing / static_cast<double>(classes);
    const at::Tensor largest_n1 = std::get<0>(logits_nK.detach().max(1, true));
    const at::Tensor whole_n1 = largest_n1 + at::log(at::exp(logits_nK - largest_n1).sum(1, true));
    sums.push_back((wanted_nK * (whole_n1 - logits_nK)).sum());
  }
  return sums.empty() ? all_BTK.sum({1, 2}) : at::stack(sums);
}

LossCounts counts_of_all_ranks(Comm& comm, const Denominator& denominator, const LossCounts& own) {
  if (denominator.scope != DenominatorScope::global || denominator.over == DenominatorOver::constant) {
    return own;
  }
  // With one rank its own counts are those of all, so no collective is needed.
  if (comm.world_size() == 1) {
    return own;
  }
  LossCounts all = own;
  const bool rows = denominator.over == DenominatorOver::rows;
  double& counted = rows ? all.rows : all.valid_steps;
  const at::Tensor count = at::full({1}, counted, at::kDouble);
  comm.all_reduce_sum(count, rows ? "loss.rows" : "loss.valid_steps");
  counted = count.item<double>();
  return all;
}

namespace {

/// Predictions, marked and in no less than float32.
at::Tensor wide_predictions(const SquaredErrorInput& input) {
  const at::Tensor& prediction = input.prediction_BTC;
  const bool fits = prediction.dim() == 3 && input.target_BTC.sizes() == prediction.sizes() &&
                    input.valid_BT.sizes() == prediction.sizes().slice(0, 2);
  if (!fits) {
    throw std::invalid_argument(c10::str("squared_error: predictions ", prediction.sizes(), " do not fit targets ",
                                         input.target_BTC.sizes(), " and valid steps ", input.valid_BT.sizes()));
  }
  const at::Tensor marked_BTC = marked(input.mark, prediction);
  return marked_BTC.scalar_type() == at::kBFloat16 ? marked_BTC.to(at::kFloat) : marked_BTC;
}

}  // namespace

at::Tensor squared_error_row_sums(const SquaredErrorInput& input) {
  const at::Tensor prediction_BTC = wide_predictions(input);
  // Masked before the square: a padded step's prediction may be no number, and nothing times 0 makes a number of it.
  const at::Tensor error_BTC =
      at::where(input.valid_BT.unsqueeze(2), prediction_BTC - input.target_BTC.to(prediction_BTC.scalar_type()), 0.0);
  return error_BTC.square().mean(2).sum(1);
}

at::Tensor squared_error_row_sums_by_definition(const SquaredErrorInput& input) {
  const at::Tensor prediction_BTC = wide_predictions(input);
  std::vector<at::Tensor> sums;
  for (int64_t row = 0; row < prediction_BTC.size(0); ++row) {
    at::Tensor sum = at::zeros({}, prediction_BTC.options().requires_grad(false));
    for (int64_t step = 0; step < prediction_BTC.size(1); ++step) {
      if (!input.valid_BT[row][step].item<bool>()) continue;
      const at::Tensor error_C = prediction_BTC[row][step] - input.target_BTC[row][step].to(prediction_BTC.scalar_type());
      sum = sum + (error_C * error_C).sum() / prediction_BTC.size(2);
    }
    sums.push_back(sum);
  }
  return sums.empty() ? prediction_BTC.sum({1, 2}) : at::stack(sums);
}

}  // namespace lockstep
