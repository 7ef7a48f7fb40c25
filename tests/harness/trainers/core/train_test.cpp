#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/trainers/core/optimizer.h"
#include "harness/trainers/core/streams.h"
#include "harness/verdict/config/catalogue.h"

namespace lockstep {
namespace {

TEST(RandomStreams, KeyedStreamsFollowTheSampleNotTheRank) {
  const RandomStreams rank0(RankSeed::keyed, 7, 0);
  const RandomStreams rank5(RankSeed::keyed, 7, 5);
  EXPECT_EQ(rank0.row_key(Purpose::dropout, 3, 42, 0), rank5.row_key(Purpose::dropout, 3, 42, 2));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0), rank0.row_key(Purpose::dropout, 3, 43, 0));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0), rank0.row_key(Purpose::dropout, 4, 42, 0));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0), rank0.row_key(Purpose::context_noise, 3, 42, 0));
  EXPECT_NE(rank0.row_key(Purpose::dropout, 3, 42, 0),
            RandomStreams(RankSeed::keyed, 8, 0).row_key(Purpose::dropout, 3, 42, 0));
}

TEST(RandomStreams, OneStreamForAllIsTheSameOnEveryRankAndPlusRankIsNot) {
  EXPECT_EQ(RandomStreams(RankSeed::same, 7, 0).row_key(Purpose::dropout, 3, 1, 2),
            RandomStreams(RankSeed::same, 7, 5).row_key(Purpose::dropout, 3, 99, 2));
  EXPECT_NE(RandomStreams(RankSeed::plus_rank, 7, 0).row_key(Purpose::dropout, 3, 1, 2),
            RandomStreams(RankSeed::plus_rank, 7, 5).row_key(Purpose::dropout, 3, 1, 2));
}

TEST(RandomStreams, FingerprintsAddUpOverRanks) {
  const std::vector<uint64_t> keys{1, 2, 3, 4};
  EXPECT_EQ(stream_fingerprint(keys),
            stream_fingerprint({keys.data(), 1}) + stream_fingerprint({keys.data() + 1, 3}));
}

TEST(FillUniform, IsUniform) {
  std::vector<float> values(1 << 16);
  fill_uniform(0x123456789ABCDEFULL, values);
  std::vector<int> counts(16, 0);
  for (const float value : values) {
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
    ++counts[static_cast<std::size_t>(value * 16)];
  }
  double chi2 = 0;
  for (const int count : counts) {
    chi2 += std::pow(count - 4096.0, 2) / 4096.0;
  }
  EXPECT_LT(chi2, 37.7) << "0.1 % point of chi-square with 15 degrees of freedom";
}

TEST(FillDropout, DropsTheRightShareAndKeepsTheMean) {
  std::vector<float> factors(1 << 16);
  fill_dropout(99, 0.1F, factors);
  double sum = 0;
  int dropped = 0;
  for (const float factor : factors) {
    sum += factor;
    dropped += factor == 0.0F ? 1 : 0;
  }
  EXPECT_NEAR(dropped / 65536.0, 0.1, 0.005);
  EXPECT_NEAR(sum / 65536.0, 1.0, 0.006);
}

TEST(LearningRate, RulesAndSchedules) {
  RunConfig config;
  config.layout = {8, 3};
  config.lr = 1e-3;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0), 1e-3);
  config.lr_rule = LrRule::linear;
  EXPECT_DOUBLE_EQ(learning_rate(config, 5), 8e-3);
  config.lr_rule = LrRule::sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(config, 5), std::sqrt(8.0) * 1e-3);
  config.lr_rule = LrRule::none;
  config.schedule = Schedule::warmup;
  config.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(config, 0), 0.25e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 9), 1e-3);
  config.schedule = Schedule::cosine;
  config.steps = 104;
  EXPECT_DOUBLE_EQ(learning_rate(config, 4), 1e-3);
  EXPECT_NEAR(learning_rate(config, 54), 0.5e-3, 1e-12);
  EXPECT_NEAR(learning_rate(config, 103), 0.0, 1e-6);
}

TEST(LearningRate, AdamSqrtScalesEverythingThatAdamHas) {
  RunConfig config;
  config.layout = {8, 3};
  config.lr_rule = LrRule::adam_sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(config, 5), std::sqrt(8.0) * 1e-3);
  EXPECT_NEAR(adam_numbers(config).beta1, 1 - 8 * 0.1, 1e-12);
  EXPECT_NEAR(adam_numbers(config).beta2, 1 - 8 * 0.001, 1e-12);
  EXPECT_NEAR(adam_numbers(config).eps, 1e-8 / std::sqrt(8.0), 1e-20);
  EXPECT_TRUE(fits_adam_sqrt(config));
  config.schedule = Schedule::warmup;
  config.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1), 0.5 * std::sqrt(8.0) * 1e-3);
  config.layout = {10, 3};
  EXPECT_FALSE(fits_adam_sqrt(config)) << "10 (1 - 0.9) is 1, whatever its rounding";
  EXPECT_GE(adam_numbers(config).beta1, 0);
  for (const LrRule rule : {LrRule::none, LrRule::linear, LrRule::sqrt}) {
    config.lr_rule = rule;
    EXPECT_EQ(adam_numbers(config).beta1, 0.9);
    EXPECT_EQ(adam_numbers(config).beta2, 0.999);
    EXPECT_EQ(adam_numbers(config).eps, 1e-8);
    EXPECT_TRUE(fits_adam_sqrt(config));
  }
  config.layout = {1, 24};
  config.lr_rule = LrRule::adam_sqrt;
  EXPECT_EQ(adam_numbers(config).beta1, 0.9) << "one rank scales nothing, to the bit";
  EXPECT_EQ(learning_rate(config, 9), 1e-3);
}

/// Parameters after three updates by gradients that change.
at::Tensor after_updates(const RunConfig& config, double rate) {
  ParameterList parameters;
  parameters.add("a", at::linspace(-1, 1, 7));
  Optimizer optimizer(config, parameters);
  for (int step = 1; step <= 3; ++step) {
    parameters.tensors[0].mutable_grad() = at::linspace(1, -2, 7) * step;
    optimizer.step(rate);
  }
  return parameters.tensors[0].detach();
}

TEST(Optimizer, ByAdamSqrtIsAdamWithThoseNumbers) {
  RunConfig config, plain;
  config.layout = {8, 3};
  config.lr_rule = LrRule::adam_sqrt;
  plain.beta1 = adam_numbers(config).beta1;
  plain.beta2 = adam_numbers(config).beta2;
  plain.eps = adam_numbers(config).eps;
  EXPECT_TRUE(at::equal(after_updates(config, 1e-3), after_updates(plain, 1e-3)));
  EXPECT_FALSE(at::equal(after_updates(config, 1e-3), after_updates(RunConfig{}, 1e-3)));
}

TEST(ClipGradients, ScalesToTheNormOnlyWhenItIsLarger) {
  ParameterList parameters;
  parameters.add("a", at::zeros({3}));
  parameters.add("b", at::zeros({2}));
  parameters.tensors[0].mutable_grad() = at::full({3}, 2.0);
  parameters.tensors[1].mutable_grad() = at::full({2}, 2.0);
  const at::Tensor norm = total_gradient_norm(parameters.tensors);
  EXPECT_NEAR(norm.item<double>(), std::sqrt(20.0), 1e-6);
  clip_gradients(parameters.tensors, norm, 10.0);
  EXPECT_EQ(parameters.tensors[0].grad()[0].item<float>(), 2.0F);
  clip_gradients(parameters.tensors, norm, 1.0);
  EXPECT_NEAR(total_gradient_norm(parameters.tensors).item<double>(), 1.0, 1e-5);
}

}  // namespace
}  // namespace lockstep
