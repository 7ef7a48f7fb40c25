// SigLIP-style (Zhai et al., 2023, arXiv 2303.15343): every pair of a row and a candidate is a question of
// its own, matching or not; l_i = -sum_j log sigmoid(z_ij (s_ij + bias)) with z = 1 for the row's own action
// and -1 for the others. No sum over candidates normalises anything, so local negatives need no gather and
// gathered ones nothing but raw actions. The bias is fixed at -log(number of negatives), so that at the start
// positives and negatives weigh alike.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "losses/block.h"
#include "losses/reference.h"

namespace lockstep {
namespace {

double bias_of(double negatives) { return -std::log(std::max(negatives, 1.0)); }

/// Of energy 0.
double chance_of(double negatives) {
  const double bias = bias_of(negatives);
  return std::log1p(std::exp(-bias)) + negatives * std::log1p(std::exp(bias));
}

constexpr const char* kSigmoidInBatchAlone = "sigmoid: only infonce supports explicit negatives";

class SigmoidLoss : public Loss {
 public:
  LossOutput forward(const LossInput& input) override {
    require_in_batch(input.options, input.explicit_BnA, kSigmoidInBatchAlone);
    const Block block = make_block(input);
    const at::Tensor logit_BN = marked(input.mark, -block.energy_BN / input.model.temperature());
    const at::Tensor column = at::arange(block.energy_BN.size(1), at::kLong);
    const at::Tensor own_BN = block.target_B.unsqueeze(1) == column.unsqueeze(0);
    const at::Tensor valid_BN = block.valid_BN.defined() ? block.valid_BN : at::ones_like(own_BN);
    const at::Tensor negatives_B1 = (valid_BN.sum(1, true) - 1).clamp_min(1).to(logit_BN.scalar_type());
    const at::Tensor biased_BN = logit_BN - at::log(negatives_B1);
    const at::Tensor pair_BN = -at::log_sigmoid(at::where(own_BN, biased_BN, -biased_BN));
    LossOutput output = make_output(input, block.counted_B, at::where(valid_BN, pair_BN, 0.0).sum(1));
    describe_block(block, output);
    output.chance_nats = chance_of(output.negatives_in_batch);
    return output;
  }

  LossOutput reference(const ReferenceInput& input) override {
    require_in_batch(input.options, input.explicit_BnA, kSigmoidInBatchAlone);
    const ReferenceBlock block = reference_block(input);
    // -log sigmoid(x) = log(1 + e^-x), written so that neither sign overflows.
    const auto loss_of = [](const at::Tensor& x) { return at::relu(-x) + at::log1p(at::exp(-x.abs())); };
    std::vector<at::Tensor> losses;
    for (int64_t i = 0; i < block.rows(); ++i) {
      const std::vector<int64_t>& negatives = block.negatives[static_cast<std::size_t>(i)];
      const double bias = bias_of(static_cast<double>(negatives.size()));
      at::Tensor sum = loss_of(block.logit(i, i) + bias);
      for (const int64_t j : negatives) {
        sum = sum + loss_of(-(block.logit(i, j) + bias));
      }
      losses.push_back(sum);
    }
    LossOutput output = reference_output(input, block, losses);
    output.chance_nats = chance_of(output.negatives_in_batch);
    return output;
  }
};

}  // namespace

std::unique_ptr<Loss> make_sigmoid_loss() { return std::make_unique<SigmoidLoss>(); }

}  // namespace lockstep
