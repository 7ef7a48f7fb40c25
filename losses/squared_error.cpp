#include "losses/squared_error.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <stdexcept>
#include <vector>

namespace lockstep {
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
