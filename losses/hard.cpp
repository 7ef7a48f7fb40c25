// InfoNCE over hard negatives: of a row's N in-batch candidates the max(1, N / 4) with the lowest energy,
// beside its own. The choice is no part of the graph, and ties go to the smaller sample id, so that the
// layout does not decide them. Where two candidates are nearer to each other than rounding, layouts can still
// choose differently.

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "losses/block.h"
#include "losses/infonce.h"
#include "losses/reference.h"

namespace lockstep {
namespace {

int64_t kept_of(int64_t candidates) { return std::max<int64_t>(1, candidates / 4); }

constexpr const char* kHardInBatchAlone = "hard: only infonce supports explicit negatives";

/// [B, N] bool: each row's own candidate and its hardest negatives, by the energies to choose by if there are any.
at::Tensor hardest(const Block& block, const at::Tensor& choosing_BN) {
  const int64_t rows = block.energy_BN.size(0);
  const int64_t columns = block.energy_BN.size(1);
  TORCH_CHECK_VALUE(!choosing_BN.defined() || choosing_BN.sizes() == block.energy_BN.sizes(), "hard: energies to choose by are ",
                    choosing_BN.sizes(), ", and the row's own ", block.energy_BN.sizes());
  const at::Tensor energy = (choosing_BN.defined() ? choosing_BN : block.energy_BN.detach()).to(at::kDouble).contiguous();
  at::Tensor kept = at::zeros({rows, columns}, at::kBool);
  bool* keep = kept.mutable_data_ptr<bool>();
  const at::Tensor valid = block.valid_BN.defined() ? block.valid_BN.contiguous() : at::Tensor();
  for (int64_t i = 0; i < rows; ++i, keep += columns) {
    const double* row = energy.const_data_ptr<double>() + i * columns;
    const int64_t own = block.target_B[i].item<int64_t>();
    const bool* may = valid.defined() ? valid.const_data_ptr<bool>() + i * columns : nullptr;
    std::vector<std::tuple<double, int64_t, int64_t>> order;
    for (int64_t j = 0; j < columns; ++j) {
      if (j != own && (may == nullptr || may[j])) {
        order.emplace_back(row[j], block.candidates.ids[static_cast<std::size_t>(j)], j);
      }
    }
    const auto count =
        std::min(static_cast<std::ptrdiff_t>(kept_of(columns)), static_cast<std::ptrdiff_t>(order.size()));
    std::partial_sort(order.begin(), order.begin() + count, order.end());
    keep[own] = true;
    for (std::ptrdiff_t k = 0; k < count; ++k) {
      keep[std::get<2>(order[static_cast<std::size_t>(k)])] = true;
    }
  }
  return kept;
}

class HardLoss : public Loss {
 public:
  LossOutput forward(const LossInput& input) override {
    require_in_batch(input.options, input.explicit_BnA, kHardInBatchAlone);
    Block block = make_block(input);
    block.valid_BN = hardest(block, input.choosing_BN);
    LossOutput output = make_output(
        input, block.counted_B,
        infonce_row_losses(input, block.energy_BN, input.model.temperature(), block.target_B, block.valid_BN));
    describe_block(block, output);
    output.chance_nats = std::log(1 + output.negatives_in_batch);
    return output;
  }

  LossOutput reference(const ReferenceInput& input) override {
    require_in_batch(input.options, input.explicit_BnA, kHardInBatchAlone);
    ReferenceBlock block = reference_block(input);
    const at::Tensor& choosing_BB = input.choosing_BB.defined() ? input.choosing_BB : block.energy_BB;
    std::vector<at::Tensor> losses;
    for (int64_t i = 0; i < block.rows(); ++i) {
      std::vector<int64_t>& negatives = block.negatives[static_cast<std::size_t>(i)];
      const int64_t candidates =
          std::count(block.group.begin(), block.group.end(), block.group[static_cast<std::size_t>(i)]);
      const auto easier = [&](int64_t a, int64_t b) {
        const double of_a = choosing_BB[i][a].item<double>();
        const double of_b = choosing_BB[i][b].item<double>();
        return of_a != of_b ? of_a < of_b
                            : input.ids[static_cast<std::size_t>(a)] < input.ids[static_cast<std::size_t>(b)];
      };
      std::sort(negatives.begin(), negatives.end(), easier);
      negatives.resize(std::min(negatives.size(), static_cast<std::size_t>(kept_of(candidates))));
      losses.push_back(log_sum_exp(block.logits(i, negatives)) - block.logit(i, i));
    }
    LossOutput output = reference_output(input, block, losses);
    output.chance_nats = std::log(1 + output.negatives_in_batch);
    return output;
  }
};

}  // namespace

std::unique_ptr<Loss> make_hard_loss() { return std::make_unique<HardLoss>(); }

}  // namespace lockstep
