#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/plan/catalogue.h"
#include "harness/train/optimizer.h"
#include "harness/train/streams.h"

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
