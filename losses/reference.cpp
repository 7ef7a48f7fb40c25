#include "losses/reference.h"

#include <ATen/ATen.h>

#include <limits>

namespace lockstep {

at::Tensor ReferenceBlock::logits(int64_t row, const std::vector<int64_t>& columns) const {
  std::vector<int64_t> all{row};
  all.insert(all.end(), columns.begin(), columns.end());
  return logit_BB.select(0, row).index_select(0, at::tensor(at::ArrayRef<int64_t>(all), at::kLong));
}

at::Tensor log_sum_exp(const at::Tensor& values) {
  const at::Tensor largest = values.detach().max();
  return largest + at::log(at::exp(values - largest).sum());
}

ReferenceBlock reference_block(const ReferenceInput& input) {
  ReferenceBlock block;
  const EncodedRows rows = input.model.encode_context();
  const at::Tensor tau = input.model.temperature();
  const at::Tensor& each = input.explicit_BnA;
  const auto own = [&](const at::Tensor& action_BnA, int64_t first_id) {
    const at::Tensor encoded = input.model.encode_action(action_BnA.flatten(0, 1));
    return input.model.own_energies(
        rows, encoded.reshape({action_BnA.size(0), action_BnA.size(1), encoded.size(1)}), first_id);
  };
  if (input.options.in_batch) {
    block.energy_BB = input.model.energies(rows, input.model.encode_action(input.action_BA), input.ids, 0);
    block.explicit_energy_Bn = each.defined() ? own(each, -2) : at::Tensor();
  } else {
    const at::Tensor energies = own(at::cat({input.action_BA.unsqueeze(1), each}, 1), -1);
    block.energy_BB = at::diag_embed(energies.select(1, 0));
    block.explicit_energy_Bn = energies.narrow(1, 1, each.size(1));
  }
  block.logit_BB = marked(input.mark, -block.energy_BB / tau);
  if (block.explicit_energy_Bn.defined()) {
    block.explicit_logit_Bn = marked(input.mark, -block.explicit_energy_Bn / tau);
  }
  const auto count = static_cast<int64_t>(input.ids.size());
  const int64_t* group = input.group_B.const_data_ptr<int64_t>();
  block.group.assign(group, group + count);
  block.counted.assign(static_cast<std::size_t>(count), 1);
  block.negatives.resize(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::size_t>(i);
    if (input.counted_B.defined()) {
      block.counted[row] = input.counted_B[i].item<bool>() ? 1 : 0;
    }
    for (int64_t j = 0; input.options.in_batch && j < count; ++j) {
      const auto column = static_cast<std::size_t>(j);
      const bool same_sample = input.ids[row] == input.ids[column];
      if (i != j && group[i] == group[j] && !(input.options.mask_duplicates && same_sample)) {
        block.negatives[row].push_back(j);
      }
    }
  }
  return block;
}

LossOutput reference_output(const ReferenceInput& input, const ReferenceBlock& block,
                            const std::vector<at::Tensor>& row_losses) {
  LossOutput output;
  double rows = 0;
  std::vector<at::Tensor> terms;
  for (std::size_t i = 0; i < row_losses.size(); ++i) {
    terms.push_back(block.counted[i] != 0 ? row_losses[i] : row_losses[i] * 0.0);
    rows += block.counted[i] != 0 ? 1 : 0;
    output.negatives_in_batch +=
        static_cast<double>(block.negatives[i].size()) / static_cast<double>(block.rows());
  }
  output.row_weight = rows > 0 ? 1.0 / rows : 0.0;
  output.row_losses_B = at::stack(terms);
  output.loss = output.row_losses_B.sum() * output.row_weight;

  at::Tensor energies = block.energy_BB.detach().clone();
  double positive = 0, negative = 0, negatives = 0;
  for (int64_t i = 0; i < block.rows(); ++i) {
    positive += energies[i][i].item<double>();
    for (const int64_t j : block.negatives[static_cast<std::size_t>(i)]) {
      negative += energies[i][j].item<double>();
      ++negatives;
    }
    for (int64_t j = 0; j < block.rows(); ++j) {
      const bool together =
          block.group[static_cast<std::size_t>(i)] == block.group[static_cast<std::size_t>(j)];
      if (!together) {
        energies[i][j] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
  output.column_ids.assign(input.ids.begin(), input.ids.end());
  output.energies_computed = input.options.in_batch ? energies.numel() : block.rows();
  if (!input.options.in_batch) {
    energies = energies.diagonal().unsqueeze(1);
    output.column_ids = {-1};
  }
  if (block.explicit_energy_Bn.defined()) {
    const at::Tensor each = block.explicit_energy_Bn.detach();
    energies = at::cat({energies, each}, 1);
    for (int64_t k = 0; k < each.size(1); ++k) {
      output.column_ids.push_back(-2 - k);
    }
    negative += each.sum().item<double>();
    negatives += static_cast<double>(each.numel());
    output.energies_computed += each.numel();
    output.negatives_explicit = static_cast<double>(each.size(1));
  }
  output.energies = energies.contiguous();
  output.energy_positive = positive / static_cast<double>(block.rows());
  output.energy_negative = negatives > 0 ? negative / negatives : 0;
  return output;
}

}  // namespace lockstep
