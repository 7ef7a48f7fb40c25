#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/ledger.h"
#include "losses/cross_entropy.h"
#include "losses/infonce.h"
#include "losses/loss.h"
#include "scenarios/energy/spec.h"
#include "tests/support/ranks.h"

// What every form promises apart from its gradients: chance level, zero rows, names of shapes and of bad
// options.

namespace lockstep {
namespace {

/// Energies from a table of bumps: pair (i, j) has bump * sin(1 + 3 i + 5 j).
class TableEnergy : public EnergyFunction {
 public:
  TableEnergy(int64_t rows, double bump) : rows_(rows), bump_(bump) {}
  EncodedRows encode_context() override { return {{at::arange(rows_, at::kDouble)}}; }
  at::Tensor encode_action(const at::Tensor& action_NA) override { return action_NA; }
  at::Tensor energies(const EncodedRows& rows, const at::Tensor& action_ND, std::span<const int64_t>,
                      int64_t) override {
    return energy(rows.tensors[0].unsqueeze(1), action_ND.select(1, 0).unsqueeze(0));
  }
  at::Tensor own_energies(const EncodedRows& rows, const at::Tensor& action_BnD, int64_t) override {
    return energy(rows.tensors[0].unsqueeze(1), action_BnD.select(2, 0));
  }
  std::vector<at::Tensor> head_parameters() override { return {scale_}; }
  void begin_replay(std::vector<at::Tensor> head_parameters) override { replay_ = head_parameters.at(0); }
  void end_replay() override { replay_ = at::Tensor(); }
  at::Tensor temperature() override { return at::full({}, 0.5, at::kDouble); }
  const at::Tensor& scale() const { return scale_; }

 private:
  at::Tensor energy(const at::Tensor& row, const at::Tensor& action) const {
    return 2.5 + bump_ * (replay_.defined() ? replay_ : scale_) * at::sin(1 + 3 * row + 5 * action);
  }
  int64_t rows_;
  double bump_;
  at::Tensor scale_ = at::ones({}, at::kDouble).requires_grad_(true);
  at::Tensor replay_;
};

struct Asked {
  std::shared_ptr<TableEnergy> model;
  std::unique_ptr<Comm> comm = make_solo_comm();
  std::vector<int64_t> ids;
  LossInput input(double total_rows) {
    LossInput input{.comm = *comm, .model = *model};
    input.action_BA = at::arange(static_cast<double>(ids.size()), at::kDouble).unsqueeze(1);
    input.ids = ids;
    input.end_row = static_cast<int64_t>(ids.size());
    input.total_rows = total_rows;
    return input;
  }
};

Asked asked(std::vector<int64_t> ids, double bump) {
  Asked asked;
  asked.model = std::make_shared<TableEnergy>(static_cast<int64_t>(ids.size()), bump);
  asked.ids = std::move(ids);
  return asked;
}

std::vector<int64_t> first_ids(int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(7 * i + 3);
  }
  return ids;
}

TEST(Losses, AConstantEnergyGivesExactlyLogN) {
  for (const char* name : {"infonce", "symmetric"}) {
    Asked asked_of = asked(first_ids(24), 0.0);
    const LossOutput output = make_loss(name)->forward(asked_of.input(24));
    EXPECT_DOUBLE_EQ(output.loss.item<double>(), std::log(24.0)) << name;
    EXPECT_DOUBLE_EQ(output.chance_nats, std::log(24.0)) << name;
  }
  Asked asked_of = asked(first_ids(24), 0.0);
  const LossOutput hard = make_loss("hard")->forward(asked_of.input(24));
  EXPECT_DOUBLE_EQ(hard.loss.item<double>(), std::log(7.0)) << "six of 23 negatives are kept";
  EXPECT_DOUBLE_EQ(hard.chance_nats, std::log(7.0));
}

TEST(Losses, ExplicitNegativesHaveTheirOwnChanceLevel) {
  Asked asked_of = asked(first_ids(6), 0.0);
  LossInput input = asked_of.input(6);
  input.explicit_BnA = at::ones({6, 5, 1}, at::kDouble);
  input.options.in_batch = false;
  const LossOutput layer = make_loss("infonce")->forward(input);
  EXPECT_DOUBLE_EQ(layer.loss.item<double>(), std::log(6.0));
  EXPECT_EQ(layer.column_ids, (std::vector<int64_t>{-1, -2, -3, -4, -5, -6}));
}

TEST(Losses, AMixturesChanceLevelDoesNotDependOnHowManyThereAre) {
  for (const int64_t rows : {3, 24}) {
    for (const int64_t count : {1, 8, 20}) {
      Asked asked_of = asked(first_ids(rows), 0.0);
      LossInput input = asked_of.input(static_cast<double>(rows));
      input.explicit_BnA = at::ones({rows, count, 1}, at::kDouble);
      const LossOutput mixed = make_loss("infonce")->forward(input);
      EXPECT_NEAR(mixed.loss.item<double>(), std::log(32.0), 1e-14) << rows << " rows, " << count;
      EXPECT_DOUBLE_EQ(mixed.chance_nats, std::log(32.0));
      EXPECT_EQ(mixed.negatives_in_batch, static_cast<double>(rows - 1));
      EXPECT_EQ(mixed.negatives_explicit, static_cast<double>(count));
    }
  }
  // At the declared counts it is the softmax over all of them.
  Asked asked_of = asked(first_ids(24), 1.0);
  LossInput input = asked_of.input(24);
  input.explicit_BnA = at::arange(24.0 * 8, at::kDouble).reshape({24, 8, 1});
  const LossOutput mixed = make_loss("infonce")->forward(input);
  const at::Tensor plain =
      infonce_row_losses(mixed.energies, asked_of.model->temperature(), at::arange(24, at::kLong), {});
  EXPECT_NEAR(mixed.loss.item<double>(), plain.mean().item<double>(), 1e-13);
}

TEST(Losses, ADuplicateIsNoNegativeWhenItIsMasked) {
  Asked asked_of = asked({1, 2, 1, 3}, 1.0);
  LossInput input = asked_of.input(4);
  input.options.mask_duplicates = true;
  const LossOutput output = make_loss("infonce")->forward(input);
  const at::Tensor logits = -output.energies / 0.5;
  const at::Tensor kept = logits[0].index_select(0, at::tensor({0, 1, 3}));
  EXPECT_NEAR(output.row_losses_B[0].item<double>(), (at::logsumexp(kept, 0) - logits[0][0]).item<double>(),
              1e-14);
  EXPECT_DOUBLE_EQ(output.negatives_in_batch, (2 + 3 + 2 + 3) / 4.0);
}

TEST(Losses, RowsThatDoNotCountWeighNothing) {
  for (const LossEntry& entry : losses()) {
    Asked asked_of = asked(first_ids(5), 1.0);
    LossInput input = asked_of.input(3);
    input.counted_B = at::tensor({1, 0, 1, 1, 0}).to(at::kBool);
    const LossOutput output = entry.make()->forward(input);
    EXPECT_EQ(output.row_losses_B[1].item<double>(), 0.0) << entry.name;
    EXPECT_NEAR(output.loss.item<double>(), output.row_losses_B.sum().item<double>() / 3, 1e-14)
        << entry.name;
  }
}

TEST(Losses, WithoutAnyRowTheLossIsZeroAndDifferentiable) {
  for (const LossEntry& entry : losses()) {
    Asked asked_of = asked({}, 1.0);
    LossInput input = asked_of.input(0);
    const LossOutput output = entry.make()->forward(input);
    EXPECT_EQ(output.loss.item<double>(), 0.0) << entry.name;
    output.loss.backward();
    EXPECT_EQ(asked_of.model->scale().grad().item<double>(), 0.0) << entry.name;
  }
}

TEST(Losses, TilesGiveTheSameGradientOnce) {
  for (const LossEntry& entry : losses()) {
    const auto gradient = [&](int64_t tile) {
      Asked asked_of = asked(first_ids(7), 1.0);
      LossInput input = asked_of.input(7);
      input.options.tile_columns = tile;
      const LossOutput output = entry.make()->forward(input);
      EXPECT_EQ(output.replayed, tile < 7);
      EXPECT_EQ(output.energies_computed, tile < 7 ? 98 : 49);
      int hooks = 0;
      asked_of.model->scale().register_hook([&](const at::Tensor&) { ++hooks; });
      output.loss.backward();
      EXPECT_EQ(hooks, 1) << "a reducer would see the parameter more than once";
      return asked_of.model->scale().grad().item<double>();
    };
    const double whole = gradient(7);
    for (const int64_t tile : {1, 3, 6}) {
      EXPECT_NEAR(gradient(tile), whole, 1e-14) << entry.name << ", tile " << tile;
    }
  }
}

TEST(Losses, OnlyInfoNceTakesExplicitNegatives) {
  for (const char* name : {"hard", "sigmoid", "symmetric"}) {
    Asked asked_of = asked(first_ids(4), 1.0);
    LossInput input = asked_of.input(4);
    input.explicit_BnA = at::ones({4, 2, 1}, at::kDouble);
    EXPECT_THROW(make_loss(name)->forward(input), std::invalid_argument) << name;
  }
  EXPECT_THROW(make_loss("infonec"), std::invalid_argument);
}

TEST(Losses, ColumnsNeedAllRowsAtOnce) {
  Asked asked_of = asked(first_ids(4), 1.0);
  LossInput input = asked_of.input(4);
  input.end_row = 2;
  EXPECT_FALSE(make_loss("symmetric")->takes_parts());
  EXPECT_THROW(make_loss("symmetric")->forward(input), std::invalid_argument);
}

TEST(Losses, HardNegativesAreTheLowestEnergiesAndTiesGoToTheSmallerId) {
  Asked asked_of = asked({9, 4, 7, 1, 6, 2, 8, 3}, 0.0);  // all energies are equal
  const std::unique_ptr<Loss> hard = make_loss("hard");
  const LossOutput tied = hard->forward(asked_of.input(8));
  EXPECT_DOUBLE_EQ(tied.negatives_in_batch, 2.0);
  Asked bumpy = asked(first_ids(8), 1.0);
  const LossOutput output = hard->forward(bumpy.input(8));
  const at::Tensor logits = -output.energies / 0.5;
  for (int64_t i = 0; i < 8; ++i) {
    at::Tensor others = logits[i].clone();
    const at::Tensor own = others[i].clone();
    others[i] = -1e300;
    const at::Tensor kept = at::cat({own.reshape({1}), std::get<0>(others.sort(0, true)).narrow(0, 0, 2)});
    EXPECT_NEAR(output.row_losses_B[i].item<double>(), (at::logsumexp(kept, 0) - own).item<double>(), 1e-14);
  }
}

at::Tensor energies(int64_t rows, int64_t columns) {
  // Asymmetric on purpose: symmetric data hides mistakes of distribution.
  return at::arange(rows * columns, at::kDouble)
      .mul(1.7)
      .sin()
      .mul(3.0)
      .reshape({rows, columns})
      .contiguous();
}

/// The loss of all rows of all ranks in one process, row i's positive in column i.
at::Tensor in_one_process(const at::Tensor& energy, const at::Tensor& tau) {
  const at::Tensor logits = -energy / tau;
  return (at::log(at::exp(logits).sum(1)) - logits.diagonal()).mean();
}

TEST(RowInfoNce, EqualsItsFormulaInFloat64) {
  const at::Tensor energy = energies(6, 6).requires_grad_(true);
  const at::Tensor tau = at::full({}, 0.4, at::kDouble).requires_grad_(true);
  const InfoNce nce = row_infonce(energy, tau, at::arange(6), {}, {1, 6});
  nce.loss.backward();
  const at::Tensor plain = energies(6, 6).requires_grad_(true), plain_tau = tau.detach().clone().requires_grad_(true);
  const at::Tensor loss = in_one_process(plain, plain_tau);
  loss.backward();
  EXPECT_NEAR(nce.loss.item<double>(), loss.item<double>(), 1e-13);
  EXPECT_NEAR(tau.grad().item<double>(), plain_tau.grad().item<double>(), 1e-12);
  EXPECT_LT((energy.grad() - plain.grad()).abs().max().item<double>(), 1e-14);
}

TEST(RowInfoNce, MeanOverRanksIsOneProcessAlsoWithUnequalRowsAndPadding) {
  // Ranks hold 3, 1 and 2 of six rows; columns are padded to three a rank.
  const std::vector<std::vector<int64_t>> rows_of{{0, 1, 2}, {3}, {4, 5}};
  const at::Tensor whole = energies(6, 6);
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
  EXPECT_NEAR(loss, in_one_process(whole, at::full({}, 0.7, at::kDouble)).item<double>(), 1e-13);
}

TEST(RowInfoNce, UnmaskedPaddingWouldShow) {
  const at::Tensor energy = at::cat({energies(4, 4), at::zeros({4, 2}, at::kDouble)}, 1);
  at::Tensor valid = at::ones({6}, at::kBool);
  valid.narrow(0, 4, 2).fill_(false);
  const at::Tensor tau = at::ones({}, at::kDouble);
  const double masked = row_infonce(energy, tau, at::arange(4), valid, {1, 4}).loss.item<double>();
  const double unmasked = row_infonce(energy, tau, at::arange(4), {}, {1, 4}).loss.item<double>();
  EXPECT_NEAR(masked, in_one_process(energies(4, 4), tau).item<double>(), 1e-13);
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

// Cross-entropy over rows of unequal length, and every denominator under every partitioning of rows to ranks.
//
// B = rows, T = time steps, K = classes, F = features.

constexpr int64_t kRows = 12, kSteps = 7, kClasses = 3, kFeatures = 5;

at::Tensor wave(at::IntArrayRef shape, double phase = 0) {
  return at::arange(c10::multiply_integers(shape), at::kDouble).mul(0.73).add(phase).sin().mul(1.7).reshape(shape);
}

/// Row i has these valid steps: unequal, one of a single step, one of none.
const std::vector<int64_t> kValidSteps{7, 1, 4, 2, 6, 0, 3, 5, 7, 2, 1, 4};

at::Tensor valid_of(const std::vector<int64_t>& rows) {
  std::vector<int64_t> steps;
  for (const int64_t row : rows) {
    steps.push_back(kValidSteps[static_cast<std::size_t>(row)]);
  }
  return at::arange(kSteps, at::kLong).unsqueeze(0) <
         at::tensor(at::ArrayRef<int64_t>(steps), at::kLong).unsqueeze(1);
}

at::Tensor targets_of(const std::vector<int64_t>& rows) {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(rows), at::kLong);
  return (index.unsqueeze(1) * 2 + at::arange(kSteps, at::kLong).unsqueeze(0)) % kClasses;
}

std::vector<int64_t> all_rows() {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < kRows; ++row) {
    rows.push_back(row);
  }
  return rows;
}

CrossEntropyInput input_of(const at::Tensor& logits, double smoothing) {
  return {logits, targets_of(all_rows()), valid_of(all_rows()), smoothing};
}

TEST(CrossEntropy, ItsGradientIsThatOfFiniteDifferences) {
  constexpr double kShift = 1e-5;
  const at::Tensor logits = wave({kRows, kSteps, kClasses}).requires_grad_(true);
  cross_entropy_row_sums(input_of(logits, 0.1)).sum().backward();
  for (int64_t i = 0; i < logits.numel(); i += 11) {
    double sides[2];
    for (const int side : {0, 1}) {
      at::Tensor moved = logits.detach().clone();
      moved.view({-1})[i] += side == 0 ? -kShift : kShift;
      sides[side] = cross_entropy_row_sums(input_of(moved, 0.1)).sum().item<double>();
    }
    EXPECT_NEAR(logits.grad().flatten()[i].item<double>(), (sides[1] - sides[0]) / (2 * kShift), 1e-9) << i;
  }
}

TEST(CrossEntropy, EqualsItsDefinition) {
  for (const double smoothing : {0.0, 0.2}) {
    const at::Tensor fast = wave({kRows, kSteps, kClasses}).requires_grad_(true);
    const at::Tensor plain = wave({kRows, kSteps, kClasses}).requires_grad_(true);
    const at::Tensor a = cross_entropy_row_sums(input_of(fast, smoothing));
    const at::Tensor b = cross_entropy_row_sums_by_definition(input_of(plain, smoothing));
    EXPECT_LT((a - b).abs().max().item<double>(), 1e-13);
    EXPECT_EQ(b[5].item<double>(), 0.0) << "a row without a valid step";
    a.sum().backward();
    b.sum().backward();
    EXPECT_LT((fast.grad() - plain.grad()).abs().max().item<double>(), 1e-14);
  }
}

TEST(CrossEntropy, PaddingDoesNotMatterEvenIfItIsNoNumber) {
  at::Tensor values = wave({kRows, kSteps, kClasses});
  const at::Tensor before = cross_entropy_row_sums(input_of(values, 0.1));
  const at::Tensor padding = valid_of(all_rows()).logical_not().unsqueeze(2);
  const at::Tensor spoiled = values.masked_fill(padding, std::numeric_limits<double>::quiet_NaN()).requires_grad_(true);
  const at::Tensor after = cross_entropy_row_sums(input_of(spoiled, 0.1));
  EXPECT_TRUE(at::equal(before, after));
  after.sum().backward();
  EXPECT_TRUE(spoiled.grad().isfinite().all().item<bool>());
  EXPECT_EQ(spoiled.grad().masked_select(padding).abs().sum().item<double>(), 0.0);
}

TEST(CrossEntropy, ConstantLogitsGiveLogK) {
  const at::Tensor sums = cross_entropy_row_sums(input_of(at::ones({kRows, kSteps, kClasses}, at::kDouble), 0.3));
  for (std::size_t row = 0; row < kValidSteps.size(); ++row) {
    EXPECT_NEAR(sums[static_cast<int64_t>(row)].item<double>(),
                static_cast<double>(kValidSteps[row]) * std::log(3.0), 1e-13);
  }
}

TEST(CrossEntropy, RefusesShapesThatDoNotFit) {
  CrossEntropyInput input = input_of(wave({kRows, kSteps, kClasses}), 0);
  input.valid_BT = input.valid_BT.narrow(1, 0, kSteps - 1);
  EXPECT_THROW(cross_entropy_row_sums(input), std::invalid_argument);
  EXPECT_THROW(cross_entropy_row_sums_by_definition(input), std::invalid_argument);
}

LossCounts counts_of(const std::vector<int64_t>& rows) {
  LossCounts counts{static_cast<double>(rows.size()), 0};
  for (const int64_t row : rows) {
    counts.valid_steps += static_cast<double>(kValidSteps[static_cast<std::size_t>(row)]);
  }
  return counts;
}

at::Tensor logits_of(const std::vector<int64_t>& rows, const at::Tensor& weights_KF) {
  const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(rows), at::kLong);
  const at::Tensor features = wave({kRows, kSteps, kFeatures}, 0.4).index_select(0, index);
  return at::matmul(features, weights_KF.t());
}

using Partitioning = std::vector<std::vector<int64_t>>;  ///< rows of each rank

/// Rows rank, rank + V, …; unequal: the first rank gives all but one of its rows to the last; empty: all of them.
Partitioning partitioned(int world, const std::string& how) {
  Partitioning partitioning(static_cast<std::size_t>(world));
  for (int64_t row = 0; row < kRows; ++row) {
    partitioning[static_cast<std::size_t>(row % world)].push_back(row);
  }
  const std::size_t stays = how == "unequal" ? 1 : 0;
  while (how != "equal" && partitioning.front().size() > stays) {
    partitioning.back().push_back(partitioning.front().back());
    partitioning.front().pop_back();
  }
  return partitioning;
}

struct Objective {
  double loss = 0;
  at::Tensor gradient;
};

at::Tensor rank_loss(Comm& comm, const Denominator& denominator, const std::vector<int64_t>& rows,
                     int64_t micro_steps, const at::Tensor& weights) {
  const LossCounts own = counts_of(rows), all = counts_of_all_ranks(comm, denominator, own);
  at::Tensor loss = at::zeros({}, at::kDouble);
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const std::vector<int64_t> part(rows.begin() + micro * count / micro_steps,
                                    rows.begin() + (micro + 1) * count / micro_steps);
    const at::Tensor sums =
        cross_entropy_row_sums({logits_of(part, weights), targets_of(part), valid_of(part), 0.1});
    loss = loss + sums.sum() * loss_weight(denominator, {counts_of(part), own, all, comm.world_size(), micro_steps});
  }
  return loss;
}

Objective of_ranks(const Denominator& denominator, const Partitioning& partitioning, int64_t micro_steps) {
  const int world = static_cast<int>(partitioning.size());
  EmulatedWorld emulated(world, 20);
  std::vector<Objective> ranks(partitioning.size());
  support::on_threads(world, [&](int rank) {
    at::set_num_threads(1);
    const std::unique_ptr<Comm> comm = world == 1 ? make_solo_comm() : emulated.comm(rank);
    const at::Tensor weights = wave({kClasses, kFeatures}, 2).requires_grad_(true);
    const auto at = static_cast<std::size_t>(rank);
    const at::Tensor loss = rank_loss(*comm, denominator, partitioning[at], micro_steps, weights);
    loss.backward();
    ranks[at] = {loss.item<double>(), weights.grad()};
  });
  Objective mean{0, at::zeros({kClasses, kFeatures}, at::kDouble)};
  for (const Objective& rank : ranks) {
    mean.loss += rank.loss / world;
    mean.gradient += rank.gradient / world;
  }
  return mean;
}

/// The objective as it is meant, from the definition alone: each row's sum over its denominator.
Objective in_one_process(const Denominator& denominator, const Partitioning& partitioning, int64_t micro_steps) {
  const at::Tensor weights = wave({kClasses, kFeatures}, 2).requires_grad_(true);
  const at::Tensor sums = cross_entropy_row_sums_by_definition(
      {logits_of(all_rows(), weights), targets_of(all_rows()), valid_of(all_rows()), 0.1});
  const auto divisor = [&](const std::vector<int64_t>& rows) {
    const LossCounts counts = counts_of(rows);
    return denominator.over == DenominatorOver::rows          ? counts.rows
           : denominator.over == DenominatorOver::valid_steps ? counts.valid_steps
                                                              : denominator.constant;
  };
  const auto world = static_cast<double>(partitioning.size());
  at::Tensor loss = at::zeros({}, at::kDouble);
  const auto add = [&](const std::vector<int64_t>& rows, double by) {
    for (const int64_t row : rows) {
      loss = loss + sums[row] / (by > 0 ? by : 1);
    }
  };
  for (const std::vector<int64_t>& rank : partitioning) {
    const auto count = static_cast<int64_t>(rank.size());
    if (denominator.scope == DenominatorScope::global) {
      add(rank, divisor(all_rows()));
    } else if (denominator.scope == DenominatorScope::local) {
      add(rank, divisor(rank) * world);
    } else {
      for (int64_t micro = 0; micro < micro_steps; ++micro) {
        const std::vector<int64_t> part(rank.begin() + micro * count / micro_steps,
                                        rank.begin() + (micro + 1) * count / micro_steps);
        add(part, divisor(part) * world * static_cast<double>(micro_steps));
      }
    }
  }
  loss.backward();
  return {loss.item<double>(), weights.grad()};
}

const std::vector<Denominator> kDenominators = [] {
  std::vector<Denominator> all;
  for (const auto over : {DenominatorOver::valid_steps, DenominatorOver::rows, DenominatorOver::constant}) {
    for (const auto scope : {DenominatorScope::global, DenominatorScope::local, DenominatorScope::micro}) {
      all.push_back({over, scope, over == DenominatorOver::constant ? 30.0 : 0.0});
    }
  }
  return all;
}();

std::string named(const Denominator& denominator) {
  return "over " + std::to_string(static_cast<int>(denominator.over)) + ", scope " +
         std::to_string(static_cast<int>(denominator.scope));
}

TEST(CrossEntropy, TheMeanOverRanksIsTheObjectiveUnderEveryPartitioning) {
  for (const Denominator& denominator : kDenominators) {
    for (const int world : {1, 2, 3, 4, 8}) {
      for (const char* how : {"equal", "unequal", "one_empty"}) {
        for (const int64_t micro_steps : {1, 3}) {
          const Partitioning partitioning = world == 1 ? partitioned(1, "equal") : partitioned(world, how);
          const Objective expected = in_one_process(denominator, partitioning, micro_steps);
          const Objective found = of_ranks(denominator, partitioning, micro_steps);
          const std::string what = named(denominator) + ", " + std::to_string(world) + " ranks, " + how + ", " +
                                   std::to_string(micro_steps) + " micro-steps";
          EXPECT_NEAR(found.loss, expected.loss, 1e-13 * std::max(1.0, expected.loss)) << what;
          EXPECT_LT((found.gradient - expected.gradient).norm().item<double>(),
                    1e-13 * std::max(1.0, expected.gradient.norm().item<double>()))
              << what;
        }
      }
    }
  }
}

TEST(CrossEntropy, OnlyGlobalDenominatorsAreTheSameUnderEveryLayout) {
  for (const Denominator& denominator : kDenominators) {
    const Objective one = of_ranks(denominator, partitioned(1, "equal"), 1);
    const bool global = denominator.scope == DenominatorScope::global;
    for (const int world : {3, 4}) {
      for (const int64_t micro_steps : {1, 2}) {
        const Objective found = of_ranks(denominator, partitioned(world, "unequal"), micro_steps);
        const double apart =
            (found.gradient - one.gradient).norm().item<double>() / one.gradient.norm().item<double>();
        if (global) {
          EXPECT_LT(apart, 1e-13) << named(denominator);
        } else {
          EXPECT_GT(apart, 1e-2) << named(denominator) << ": a mean of means of unequal counts";
        }
      }
    }
  }
}

/// Counts what is asked of the Comm of one rank of so many.
class CountingComm : public Comm {
 public:
  explicit CountingComm(int ranks) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int world_size() const override { return ranks_; }
  void all_reduce_sum(at::Tensor, std::string_view tag) override { tags.emplace_back(tag); }
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view) override { return tensor.unsqueeze(0); }
  void broadcast(at::Tensor, int, std::string_view) override {}
  void barrier(std::string_view) override {}
  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>&, const std::vector<std::string>&,
                                                    const ReducerOptions&) override {
    return nullptr;
  }
  std::vector<std::string> tags;

 private:
  int ranks_;
};

TEST(CrossEntropy, CountsMoveOnceAndOnlyWhereTheDenominatorIsGlobal) {
  for (const Denominator& denominator : kDenominators) {
    CountingComm alone(1), comm(2);
    counts_of_all_ranks(alone, denominator, {2, 9});
    EXPECT_TRUE(alone.tags.empty()) << named(denominator);
    counts_of_all_ranks(comm, denominator, {2, 9});
    std::vector<std::string> expected;
    if (denominator.scope == DenominatorScope::global && denominator.over != DenominatorOver::constant) {
      expected = {denominator.over == DenominatorOver::rows ? "loss.rows" : "loss.valid_steps"};
    }
    EXPECT_EQ(comm.tags, expected) << named(denominator);
  }
}

TEST(CrossEntropy, NothingToCountWeighsNothing) {
  EXPECT_EQ(loss_weight({DenominatorOver::rows, DenominatorScope::local}, {}), 0.0);
  EXPECT_EQ(loss_weight({DenominatorOver::valid_steps, DenominatorScope::micro}, {}), 0.0);
}

at::Tensor paced(at::IntArrayRef shape, double pace) {
  return at::arange(c10::multiply_integers(shape), at::kFloat).mul(pace).sin().reshape(shape);
}

/// Two layers, the first of which also reads its input's mask.
std::vector<at::Tensor> layers(const std::vector<at::Tensor>& in, bool) {
  const at::Tensor seen = at::where(in[1].unsqueeze(1), in[0], 0.0);
  const at::Tensor hidden = at::tanh(at::linear(seen, in[2], in[3]));
  return {at::linear(hidden, in[4], in[5]), hidden};
}

struct Pass {
  std::vector<at::Tensor> gradients;  ///< of the input and the parameters
  std::string order;                  ///< in which parameters had theirs
  at::Tensor loss;
};

Pass pass(bool recompute, const ModelPiece& piece) {
  std::vector<at::Tensor> activations{paced({5, 3}, 0.7).requires_grad_(true),
                                      at::tensor({1, 1, 0, 1, 1}).to(at::kBool)};
  std::vector<at::Tensor> parameters{paced({4, 3}, 0.3), paced({4}, 0.9), paced({2, 4}, 1.3), paced({2}, 1.1)};
  Pass result;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].requires_grad_(true);
    parameters[i].register_hook([&result, i](const at::Tensor& gradient) {
      result.order += static_cast<char>('a' + i);
      return gradient;
    });
  }
  std::vector<at::Tensor> inputs = activations;
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const std::vector<at::Tensor> out =
      recompute ? recomputed(piece, activations, parameters) : piece(inputs, false);
  result.loss = out[0].square().sum() + out[1].sin().sum();
  result.loss.backward();
  result.gradients.push_back(activations[0].grad());
  for (const at::Tensor& parameter : parameters) {
    result.gradients.push_back(parameter.grad());
  }
  return result;
}

TEST(Recomputed, RestsWhereNoGradientReachesItAndIsAskedTo) {
  for (const bool rests : {false, true}) {
    int calls = 0;
    const auto piece = [&calls](const std::vector<at::Tensor>& in, bool) {
      ++calls;
      return std::vector<at::Tensor>{in[0] * in[1]};
    };
    const at::Tensor x = paced({3}, 0.7).requires_grad_(true), w = paced({3}, 0.4).requires_grad_(true);
    (recomputed(piece, {x}, {w}, rests).front() * 0).sum().backward();
    EXPECT_EQ(calls, rests ? 1 : 2);
    EXPECT_EQ(w.grad().defined(), !rests);
    (recomputed(piece, {x}, {w}, rests).front() * 2).sum().backward();
    EXPECT_TRUE(at::equal(w.grad(), 2 * x.detach())) << rests;
  }
}

TEST(Recomputed, GivesTheSameBitsAndTheSameOrder) {
  const Pass kept = pass(false, layers), again = pass(true, layers);
  EXPECT_TRUE(at::equal(kept.loss, again.loss));
  for (std::size_t i = 0; i < kept.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(kept.gradients[i], again.gradients[i])) << i;
  }
  EXPECT_EQ(again.order, kept.order) << "the order in which a reducer would see them";
}

TEST(Recomputed, SaysWhichPassItIsAndAWrongSecondOneShows) {
  std::string passes;
  const Pass kept = pass(false, layers);
  const Pass wrong = pass(true, [&](const std::vector<at::Tensor>& in, bool again) {
    passes += again ? "again " : "first ";
    std::vector<at::Tensor> out = layers(in, again);
    out[0] = again ? out[0] * 2 : out[0];
    return out;
  });
  EXPECT_EQ(passes, "first again ");
  EXPECT_TRUE(at::equal(kept.loss, wrong.loss));
  EXPECT_FALSE(at::equal(kept.gradients[1], wrong.gradients[1]));
}

TEST(Recomputed, LetsGoOfThePieceWithTheGraph) {
  const auto owned = std::make_shared<int>(1);
  {
    const Pass done =
        pass(true, [owned](const std::vector<at::Tensor>& in, bool again) { return layers(in, again); });
    EXPECT_GT(owned.use_count(), 1);
  }
  EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace lockstep
