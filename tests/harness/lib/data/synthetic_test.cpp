#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "harness/base/hashing.h"
#include "harness/lib/data/series.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/dataset.h"

namespace lockstep {
namespace {

PairConfig synthetic(int64_t seed = 0) {
  PairConfig config;
  config.source = DataSource::synthetic;
  config.seed = seed;
  return config;
}

uint64_t bits_of(const SeriesSet& set) {
  uint64_t state = 1;
  for (const std::vector<float>& series : set.series) {
    for (const float value : series) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      state = mix64(state ^ bits);
    }
  }
  return state;
}

TEST(SyntheticSeries, AreTheSameBitsOnEveryMachine) {
  EXPECT_EQ(bits_of(synthetic_series(synthetic(), 0)), 7983604306176886469u);
  EXPECT_EQ(bits_of(synthetic_series(synthetic(-3), 1)), 8564173489975931360u);
}

TEST(SyntheticSeries, DifferBySeedAndByPart) {
  const uint64_t bits = bits_of(synthetic_series(synthetic(), 0));
  EXPECT_NE(bits_of(synthetic_series(synthetic(1), 0)), bits);
  EXPECT_NE(bits_of(synthetic_series(synthetic(), 1)), bits);
}

TEST(SyntheticSeries, AddingSeriesLengthensAndKeepsShape) {
  PairConfig config = synthetic();
  config.series = 7;
  config.series_steps = 30;
  config.channels = 3;
  const SeriesSet set = synthetic_series(config, 0);
  ASSERT_EQ(set.series.size(), 7u);
  EXPECT_EQ(set.channels, 3);
  EXPECT_EQ(set.steps_of(6), 30);
  EXPECT_TRUE(std::is_sorted(set.labels.begin(), set.labels.end()));
  for (const std::vector<float>& series : set.series) {
    for (const float value : series) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(SyntheticSeries, EveryClassTakesPart) {
  const SeriesSet set = synthetic_series(synthetic(), 0);
  for (const char* label : {"motion0", "motion1", "motion2", "motion3"}) {
    EXPECT_EQ(std::count(set.labels.begin(), set.labels.end(), label), 10) << label;
  }
}

// The task must be learnable: the chunk that followed the nearest training context must foretell the test
// chunk far better than the mean (0 after standardising) does.
TEST(SyntheticSeries, TheNextChunkFollowsFromTheContext) {
  const Dataset data = load_dataset(synthetic());
  const std::size_t context = static_cast<std::size_t>(data.test.context_steps) * 6;
  const std::size_t action = static_cast<std::size_t>(data.test.action_steps) * 6;
  double error = 0, variance = 0;
  for (std::size_t i = 0; i < data.test.size(); i += 13) {
    double nearest = INFINITY;
    std::size_t found = 0;
    for (std::size_t j = 0; j < data.train.size(); ++j) {
      double distance = 0;
      for (std::size_t k = 0; k < context; ++k) {
        distance += std::pow(data.test.contexts[i * context + k] - data.train.contexts[j * context + k], 2);
      }
      if (distance < nearest) {
        nearest = distance;
        found = j;
      }
    }
    for (std::size_t k = 0; k < action; ++k) {
      const double truth = data.test.actions[i * action + k];
      error += std::pow(truth - data.train.actions[found * action + k], 2);
      variance += truth * truth;
    }
  }
  EXPECT_LT(error, 0.5 * variance);
  RecordProperty("unexplained_variance", std::to_string(error / variance));
}

/// Mean over pairs of neighbouring pairs of the correlation of their actions, within or across blocks of 3.
double alike(const Windows& windows, bool within) {
  const std::size_t each = windows.actions.size() / windows.size();
  double sum = 0;
  int count = 0;
  for (std::size_t pair = 0; pair + 40 < windows.size(); ++pair) {
    const std::size_t other = within ? pair / 3 * 3 + (pair + 1) % 3 : pair + 40;
    double product = 0, own = 0, others = 0;
    for (std::size_t i = 0; i < each; ++i) {
      const double a = windows.actions[pair * each + i], b = windows.actions[other * each + i];
      product += a * b;
      own += a * a;
      others += b * b;
    }
    sum += product / std::sqrt(own * others);
    ++count;
  }
  return sum / count;
}

TEST(Correlation, MakesPairsOfABlockAlikeAndNoOthers) {
  PairConfig config;
  config.source = DataSource::synthetic;
  config.stride = 9;  // so that neighbours do not share most of their steps
  config.min_context = 10;
  const Dataset plain = load_dataset(config);
  config.block = 3;
  EXPECT_EQ(load_dataset(config).train.actions, plain.train.actions) << "blocks alone change nothing";
  EXPECT_EQ(inspect_pairs(config).hash, inspect_pairs(synthetic()).hash);
  config.correlation = 0.95;
  const Dataset correlated = load_dataset(config);
  EXPECT_EQ(correlated.train.context_mask, plain.train.context_mask);
  EXPECT_GT(alike(correlated.train, true), 0.85);
  EXPECT_LT(alike(plain.train, true), 0.5);
  EXPECT_LT(alike(correlated.train, false), 0.5);
  EXPECT_NE(inspect_pairs(config).hash, inspect_pairs(synthetic()).hash);
  for (std::size_t i = 0; i < correlated.train.contexts.size(); ++i) {
    const std::size_t step = i / static_cast<std::size_t>(correlated.train.channels);
    if (correlated.train.context_mask[step] == 0) {
      ASSERT_EQ(correlated.train.contexts[i], 0.0F);
    }
  }
}

}  // namespace
}  // namespace lockstep
