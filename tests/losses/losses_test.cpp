// What every form promises apart from its gradients: chance level, zero rows, names of shapes and of bad
// options.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/trainers/comm/checked.h"
#include "losses/infonce.h"
#include "losses/loss.h"
#include "scenarios/energy/config.h"

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

}  // namespace
}  // namespace lockstep
