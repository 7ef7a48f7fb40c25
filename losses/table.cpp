#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>

#include "losses/block.h"
#include "losses/infonce.h"
#include "losses/loss.h"
#include "losses/reference.h"

namespace lockstep {
namespace {

constexpr std::array kLosses{
    LossEntry{"hard", &make_hard_loss},
    LossEntry{"infonce", &make_infonce_loss},
    LossEntry{"sigmoid", &make_sigmoid_loss},
    LossEntry{"symmetric", &make_symmetric_loss},
};

}  // namespace

std::span<const LossEntry> losses() { return kLosses; }

std::unique_ptr<Loss> make_loss(std::string_view name) {
  for (const LossEntry& entry : kLosses) {
    if (entry.name == name) {
      return entry.make();
    }
  }
  throw std::invalid_argument("no loss is called " + std::string(name));
}

// SigLIP-style (Zhai et al., 2023, arXiv 2303.15343): every pair of a row and a candidate is a question of
// its own, matching or not; l_i = -sum_j log sigmoid(z_ij (s_ij + bias)) with z = 1 for the row's own action
// and -1 for the others. No sum over candidates normalises anything, so local negatives need no gather and
// gathered ones nothing but raw actions. The bias is fixed at -log(number of negatives), so that at the start
// positives and negatives weigh alike.
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

// The mean of the row loss and the column loss, from this rank's rows of energies alone: what a column sums
// over rows of other ranks is exchanged as its log-sum-exp, one number a column and rank (docs/trainers.md).
//
// B = rows of this rank, N = candidates of all ranks, V = world size.
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

// InfoNCE over hard negatives: of a row's N in-batch candidates the max(1, N / 4) with the lowest energy,
// beside its own. The choice is no part of the graph, and ties go to the smaller sample id, so that the
// layout does not decide them. Where two candidates are nearer to each other than rounding, layouts can still
// choose differently.
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
