#include "losses/infonce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

at::Tensor energies(int64_t rows, int64_t columns) {
  // Asymmetric on purpose: symmetric data hides mistakes of distribution.
  return at::arange(rows * columns, at::kDouble)
      .mul(1.7)
      .sin()
      .mul(3.0)
      .reshape({rows, columns})
      .contiguous();
}

std::vector<double> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel()};
}

TEST(RowInfoNce, EqualsTheFloat64Reference) {
  const at::Tensor energy = energies(6, 6).requires_grad_(true);
  const at::Tensor tau = at::full({}, 0.4, at::kDouble).requires_grad_(true);
  const InfoNce nce = row_infonce(energy, tau, at::arange(6), {}, {1, 6});
  nce.loss.backward();
  const InfoNceReference reference = infonce_reference(values(energy.detach()), {0, 1, 2, 3, 4, 5}, 6, 0.4);
  EXPECT_NEAR(nce.loss.item<double>(), reference.loss, 1e-13);
  EXPECT_NEAR(tau.grad().item<double>(), reference.d_tau, 1e-12);
  const std::vector<double> gradient = values(energy.grad().contiguous());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(gradient[i], reference.d_energy[i], 1e-14) << i;
  }
}

TEST(RowInfoNce, MeanOverRanksIsOneProcessAlsoWithUnequalRowsAndPadding) {
  // Ranks hold 3, 1 and 2 of six rows; columns are padded to three a rank.
  const std::vector<std::vector<int64_t>> rows_of{{0, 1, 2}, {3}, {4, 5}};
  const at::Tensor whole = energies(6, 6);
  const InfoNceReference reference = infonce_reference(values(whole), {0, 1, 2, 3, 4, 5}, 6, 0.7);
  at::Tensor padded = at::full({6, 9}, 1e3, at::kDouble);
  at::Tensor valid = at::zeros({9}, at::kBool);
  std::vector<int64_t> column_of;
  for (std::size_t r = 0; r < rows_of.size(); ++r) {
    for (std::size_t k = 0; k < rows_of[r].size(); ++k) {
      const auto column = static_cast<int64_t>(3 * r + k);
      column_of.push_back(column);
      valid[column] = true;
      padded.select(1, column).copy_(whole.select(1, rows_of[r][k]));
    }
  }
  double loss = 0;
  for (const std::vector<int64_t>& rows : rows_of) {
    std::vector<int64_t> targets;
    for (const int64_t row : rows) {
      targets.push_back(column_of[static_cast<std::size_t>(row)]);
    }
    const at::Tensor own = padded.index_select(0, at::tensor(rows));
    loss += row_infonce(own, at::full({}, 0.7, at::kDouble), at::tensor(targets), valid, {3, 6})
                .loss.item<double>() /
            3;
  }
  EXPECT_NEAR(loss, reference.loss, 1e-13);
}

TEST(RowInfoNce, UnmaskedPaddingWouldShow) {
  const at::Tensor energy = at::cat({energies(4, 4), at::zeros({4, 2}, at::kDouble)}, 1);
  at::Tensor valid = at::ones({6}, at::kBool);
  valid.narrow(0, 4, 2).fill_(false);
  const at::Tensor tau = at::ones({}, at::kDouble);
  const double masked = row_infonce(energy, tau, at::arange(4), valid, {1, 4}).loss.item<double>();
  const double unmasked = row_infonce(energy, tau, at::arange(4), {}, {1, 4}).loss.item<double>();
  EXPECT_NEAR(masked, infonce_reference(values(energies(4, 4)), {0, 1, 2, 3}, 4, 1.0).loss, 1e-13);
  EXPECT_GT(std::abs(masked - unmasked), 1e-3);
}

TEST(RowInfoNce, AsOneNodeHasTheSameBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t rows : {1, 5}) {
      const at::Tensor target = at::arange(3, 3 + rows), column = at::arange(24);
      for (const at::Tensor& valid : {at::Tensor(), column != 20, (column != 1).unsqueeze(0).expand({rows, 24}).contiguous()}) {
        std::vector<at::Tensor> results;
        for (const bool as_one : {false, true}) {
          const at::Tensor energy = energies(rows, 24).to(dtype).requires_grad_(true);
          const at::Tensor log_tau = at::full({}, -0.9, dtype).requires_grad_(true), tau = at::exp(log_tau);
          const at::Tensor losses = as_one ? infonce_row_losses_in_one(energy, tau, target, valid)
                                           : infonce_row_losses(energy, tau, target, valid);
          (losses * at::linspace(0.7, 1.3, rows, dtype)).sum().backward();
          for (const at::Tensor& result : {losses, energy.grad(), log_tau.grad()}) results.push_back(result);
        }
        for (std::size_t k = 0; k < 3; ++k) EXPECT_TRUE(at::equal(results[k], results[3 + k])) << k << " of " << dtype;
      }
    }
  }
}

TEST(RowInfoNce, AConstantEnergyGivesLogN) {
  const InfoNce nce = row_infonce(at::full({3, 24}, 2.5, at::kDouble), at::full({}, 0.5, at::kDouble),
                                  at::arange(3), {}, {8, 24});
  EXPECT_DOUBLE_EQ(nce.loss.item<double>(), std::log(24.0));
  EXPECT_DOUBLE_EQ(nce.energy_positive, 2.5);
  EXPECT_DOUBLE_EQ(nce.energy_negative, 2.5);
}

TEST(RowInfoNce, RefusesShapesThatDoNotFit) {
  const at::Tensor tau = at::ones({}, at::kDouble);
  EXPECT_THROW(row_infonce(energies(4, 4), tau, at::arange(3), {}, {1, 4}), std::invalid_argument);
  EXPECT_THROW(row_infonce(energies(4, 4), tau, at::arange(4), at::ones({5}, at::kBool), {1, 4}),
               std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
