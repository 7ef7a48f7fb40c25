#include "scenarios/energy/config.h"
#include "scenarios/energy/energy_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/certificate.h"

namespace lockstep {
namespace {

using support::of_ranks;
using support::of_reference;
using support::small_config;
using support::StepGradients;
using support::worst_error;

const std::vector<int64_t> kIds{5, 3, 8, 21, 13, 1, 55, 2, 34, 11, 4, 7};

TEST(NegativeLayers, AreEachOnceAndInRange) {
  LayerNegativesConfig config;
  EXPECT_EQ(negative_layers(config, 12), (std::vector<int64_t>{0, 4, 6, 10}));
  EXPECT_EQ(negative_layers(config, 6), (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_EQ(negative_layers(config, 3), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(negative_layers(config, 1), (std::vector<int64_t>{0}));
  config.as_written = true;
  EXPECT_EQ(negative_layers(config, 3), (std::vector<int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(negative_layers(config, 1), (std::vector<int64_t>{0, 0, 0, 0})) << "-1 is the last one";
  config.layers = {2, 5};
  EXPECT_EQ(negative_layers(config, 6), (std::vector<int64_t>{2, 5}));
}

TEST(KeyedShuffle, IsAPermutationAndNeverTheIdentity) {
  for (uint64_t key = 0; key < 200; ++key) {
    for (const int64_t n : {2, 3, 8}) {
      std::vector<int64_t> order = keyed_shuffle(key, n);
      EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
      }
    }
  }
  EXPECT_EQ(keyed_shuffle(3, 1), std::vector<int64_t>{0});
}

struct Made {
  at::Tensor own, candidates;
  std::vector<at::Tensor> predictions;
  std::vector<StreamUse> streams;
};

Made made(const RunConfig& config, const std::vector<int64_t>& ids, int rank = 0, int64_t steps = 8) {
  const RandomStreams streams(config.rank_seed, config.seed, rank);
  ExplicitNegatives negatives(config, {streams, 4, ids, 0, steps});
  Made result;
  for (const int64_t id : ids) {
    result.predictions.push_back(at::full({48}, static_cast<double>(id), at::kDouble));
  }
  result.own = at::sin(at::stack(result.predictions) + at::arange(48, at::kDouble));
  result.predictions.clear();
  for (int64_t layer = 0; layer < energy(config).model.action_layers; ++layer) {
    result.predictions.push_back((result.own * 0.1 + static_cast<double>(100 * layer)).requires_grad_(true));
  }
  result.candidates = negatives.candidates(result.own, result.predictions);
  result.streams = negatives.streams();
  return result;
}

TEST(ExplicitNegatives, AreMadeInTheOrderThatWasTold) {
  RunConfig config;
  energy(config).layer.count = 10;
  const Made of = made(config, kIds);
  EXPECT_EQ(of.candidates.sizes(), (std::vector<int64_t>{12, 10, 48}));
  const std::vector<int64_t> layers{0, 2, 3, 4};
  for (int64_t k = 0; k < 4; ++k) {
    EXPECT_TRUE(at::equal(of.candidates.select(1, k),
                          of.predictions[static_cast<std::size_t>(layers[static_cast<std::size_t>(k)])]));
  }
  const std::vector<double> sigma{0.1, 0.2, 0.4, 0.0, 0.3, 0.4};
  for (int64_t k = 0; k < 6; ++k) {
    const double spread = (of.candidates.select(1, 4 + k) - of.own).square().mean().sqrt().item<double>();
    if (k != 3) {
      EXPECT_NEAR(spread, sigma[static_cast<std::size_t>(k)], 0.06 * sigma[static_cast<std::size_t>(k)]) << k;
    }
  }
  const at::Tensor shuffled = of.candidates.select(1, 7).reshape({12, 8, 6});
  const at::Tensor own = of.own.reshape({12, 8, 6});
  EXPECT_TRUE(at::equal(std::get<0>(shuffled.select(2, 0).sort(1)), std::get<0>(own.select(2, 0).sort(1))));
  for (int64_t row = 0; row < 12; ++row) {
    EXPECT_FALSE(at::equal(shuffled[row], own[row])) << row;
  }
  ASSERT_EQ(of.streams.size(), 2U);
  EXPECT_EQ(of.streams[0].name, "negative_noise");
  EXPECT_EQ(of.streams[1].name, "negative_shuffle");
}

TEST(ExplicitNegatives, KeepTheFirstAndAnActionOfOneStepHasNoShuffle) {
  RunConfig config;
  energy(config).layer.count = 2;
  EXPECT_EQ(made(config, kIds).candidates.size(1), 2);
  energy(config).layer.count = 8;
  const Made of = made(config, kIds, 0, 1);
  EXPECT_EQ(of.candidates.size(1), 8);
  EXPECT_EQ(of.streams.size(), 1U);
}

TEST(ExplicitNegatives, FollowTheSampleWhateverRankAndRow) {
  RunConfig config;
  const Made whole = made(config, kIds);
  const Made part = made(config, {21, 8}, 5);
  EXPECT_TRUE(at::allclose(part.candidates[0], whole.candidates[3], 0, 1e-15));
  EXPECT_TRUE(at::allclose(part.candidates[1], whole.candidates[2], 0, 1e-15));
  EXPECT_FALSE(whole.candidates.requires_grad());
}

TEST(ExplicitNegatives, AsWrittenAreAttachedAndDrawTheSameOnAllRanks) {
  RunConfig config;
  energy(config).layer.as_written = true;
  const Made one = made(config, {21, 8}, 0);
  const Made other = made(config, {34, 2}, 5);
  EXPECT_TRUE(one.candidates.requires_grad());
  EXPECT_TRUE(at::allclose(one.candidates.select(1, 5) - one.own, other.candidates.select(1, 5) - other.own,
                           0, 1e-12));
  EXPECT_EQ(one.streams[0].fingerprint, other.streams[0].fingerprint);
  EXPECT_EQ(one.streams[1].fingerprint, other.streams[1].fingerprint);
  EXPECT_NE(made(RunConfig{}, {21, 8}, 0).streams[1].fingerprint,
            made(RunConfig{}, {34, 2}, 5).streams[1].fingerprint);
}

class ExplicitLoss : public ::testing::Test {
 protected:
  void SetUp() override {
    scenario_ = make_scenario("energy");
    scenario_->prepare(small_config(1, 12));
  }
  std::unique_ptr<Scenario> scenario_;
};

TEST_F(ExplicitLoss, TheActionHeadLearnsFromItsErrorAlone) {
  // With detached predictions the action head's gradient is the squared error's; undetached ones pull at it.
  RunConfig config = small_config(3, 4);
  energy(config).negatives = Negatives::layer;
  const StepGradients detached = of_ranks(*scenario_, config, {kIds});
  energy(config).temperature = 0.3;
  const StepGradients colder = of_ranks(*scenario_, config, {kIds});
  EXPECT_TRUE(at::equal(detached.by_group.at("action_head"), colder.by_group.at("action_head")))
      << "the loss of the energies does not reach it";
  energy(config).layer.as_written = true;
  const StepGradients attached = of_ranks(*scenario_, config, {kIds});
  EXPECT_GT((attached.by_group.at("action_head") - colder.by_group.at("action_head")).norm().item<double>(),
            1e-4);
}

TEST_F(ExplicitLoss, AsWrittenDependsOnTheLayout) {
  RunConfig config = small_config(3, 4);
  energy(config).negatives = Negatives::layer;
  EXPECT_LT(worst_error(of_ranks(*scenario_, config, {kIds}), of_reference(*scenario_, config, {kIds})),
            1e-12);
  energy(config).layer.as_written = true;
  EXPECT_GT(worst_error(of_ranks(*scenario_, config, {kIds}), of_reference(*scenario_, config, {kIds})),
            1e-3);
}

TEST_F(ExplicitLoss, SaysItsCompositionAndOtherRunsHaveNoActionHead) {
  RunConfig config = small_config(3, 4);
  energy(config).negatives = Negatives::mixed;
  const StepGradients mixed = of_ranks(*scenario_, config, {kIds});
  std::map<std::string, double> scalars;
  for (const auto& [name, value] : mixed.outputs[1].scalars) {
    scalars[name] = value;
  }
  EXPECT_EQ(scalars.at("negatives_in_batch"), 11);
  EXPECT_EQ(scalars.at("negatives_explicit"), 8);
  EXPECT_DOUBLE_EQ(scalars.at("chance_nats"), std::log(32.0));
  EXPECT_GT(scalars.at("prediction_error"), 0);
  EXPECT_EQ(scalars.at("energies_computed"), 4 * (12 + 8));
  EXPECT_EQ(mixed.outputs[1].records.front().columns.size(), 20U);
  EXPECT_EQ(mixed.outputs[1].records.front().columns.back(), -9);
  energy(config).negatives = Negatives::global;
  const StepGradients global = of_ranks(*scenario_, config, {kIds});
  EXPECT_FALSE(global.by_group.contains("action_head"));
  energy(config).tile_columns = 5;
  const StepGradients tiled = of_ranks(*scenario_, config, {kIds});
  const std::vector<StreamUse>& uses = tiled.outputs[1].streams;
  ASSERT_EQ(uses.size(), 3U);
  EXPECT_EQ(uses[2].name, "dropout replay");
  EXPECT_EQ(uses[1].fingerprint, uses[2].fingerprint);
  EXPECT_EQ(uses[1].draws, uses[2].draws);
}

}  // namespace
}  // namespace lockstep
