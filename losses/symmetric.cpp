// The mean of the row loss and the column loss, from this rank's rows of energies alone: what a column sums
// over rows of other ranks is exchanged as its log-sum-exp, one number a column and rank (docs/trainers.md).
//
// B = rows of this rank, N = candidates of all ranks, V = world size.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "losses/block.h"
#include "losses/infonce.h"
#include "losses/reference.h"

namespace lockstep {
namespace {

constexpr const char* kSymmetricInBatchAlone = "symmetric: an explicit negative is no row, so it has no column loss";

class SymmetricLoss : public Loss {
 public:
  LossOutput forward(const LossInput& input) override {
    require_in_batch(input.options, input.explicit_BnA, kSymmetricInBatchAlone);
    if (input.shared == nullptr && input.end_row - input.first_row != static_cast<int64_t>(input.ids.size())) {
      throw std::invalid_argument("symmetric: a column needs all rows of a micro-step at once");
    }
    const Block block = make_block(input);
    const at::Tensor tau = input.model.temperature();
    const at::Tensor row_B = infonce_row_losses(input, block.energy_BN, tau, block.target_B, block.valid_BN);
    LossOutput output = make_output(input, block.counted_B, 0.5 * (row_B + column_losses(input, block, tau)));
    describe_block(block, output);
    output.chance_nats = std::log(1 + output.negatives_in_batch);
    return output;
  }

  LossOutput reference(const ReferenceInput& input) override {
    require_in_batch(input.options, input.explicit_BnA, kSymmetricInBatchAlone);
    const ReferenceBlock block = reference_block(input);
    std::vector<at::Tensor> losses;
    for (int64_t j = 0; j < block.rows(); ++j) {
      // Who is whose candidate is mutual: the rows of column j are j itself and j's negatives, as far as they
      // count.
      std::vector<at::Tensor> column{block.logit(j, j)};
      for (const int64_t i : block.negatives[static_cast<std::size_t>(j)]) {
        if (block.counted[static_cast<std::size_t>(i)] != 0) {
          column.push_back(block.logit(i, j));
        }
      }
      const at::Tensor row_loss = log_sum_exp(block.logits(j, block.negatives[static_cast<std::size_t>(j)]));
      losses.push_back(0.5 *
                       (row_loss - block.logit(j, j) + log_sum_exp(at::stack(column)) - block.logit(j, j)));
    }
    LossOutput output = reference_output(input, block, losses);
    output.chance_nats = std::log(1 + output.negatives_in_batch);
    return output;
  }

  bool takes_parts() const override { return false; }
  bool needs_all_energies() const override { return true; }

 private:
  /// [N] each column's log-sum-exp over the rows that count, from the energies of all rows at their whole shape.
  static at::Tensor columns_of_all(const LossInput& input, const Block& block, const at::Tensor& tau) {
    const at::Tensor every = at::arange(input.shared->energy_NN.size(0), at::kLong);
    const at::Tensor valid_NN = valid_candidates(input, block.candidates, every);
    at::Tensor seen_NN = -input.shared->energy_NN / tau;
    if (valid_NN.defined()) seen_NN = at::where(valid_NN, seen_NN, -std::numeric_limits<double>::infinity());
    if (block.candidates.counted_N.defined()) {
      seen_NN = at::where(block.candidates.counted_N.unsqueeze(1), seen_NN, -std::numeric_limits<double>::infinity());
    }
    return at::logsumexp(seen_NN, 0);
  }

  /// Each own row's column loss in value; summed over ranks, their gradients are the column loss's, though
  /// each alone is not its row's.
  static at::Tensor column_losses(const LossInput& input, const Block& block, const at::Tensor& tau) {
    const at::Tensor logit_BN = -block.energy_BN / tau;
    const at::Tensor positive_B = logit_BN.gather(1, block.target_B.unsqueeze(1)).squeeze(1);
    at::Tensor pulls_BN, value_B;
    {
      const c10::NoGradGuard no_grad;
      at::Tensor seen_BN =
          block.valid_BN.defined() ? at::where(block.valid_BN, logit_BN, -std::numeric_limits<double>::infinity()) : logit_BN;
      if (block.counted_B.defined()) {
        seen_BN = at::where(block.counted_B.unsqueeze(1), seen_BN, -std::numeric_limits<double>::infinity());
      }
      at::Tensor column_N =
          input.shared != nullptr ? columns_of_all(input, block, tau) : at::logsumexp(seen_BN, 0);
      if (input.shared == nullptr && !input.options.local && input.comm.world_size() > 1) {
        column_N = at::logsumexp(input.comm.all_gather(column_N.contiguous(), "loss.columns"), 0);
      }
      pulls_BN = at::exp(seen_BN - column_N.unsqueeze(0));
      if (block.candidates.counted_N.defined()) {
        // A column none of whose rows counts has no log-sum-exp; only columns that count pull.
        pulls_BN = at::where(block.candidates.counted_N.unsqueeze(0), pulls_BN, 0.0);
      }
      value_B = column_N.index_select(0, block.target_B) - positive_B;
    }
    // Rows that do not count end as zeros in the output, and they pull at no column.
    const at::Tensor pull_B = (pulls_BN * marked(input.mark, logit_BN)).sum(1) - marked(input.mark, positive_B);
    return pull_B + (value_B - pull_B.detach());
  }
};

}  // namespace

std::unique_ptr<Loss> make_symmetric_loss() { return std::make_unique<SymmetricLoss>(); }

}  // namespace lockstep
