#include "scenarios/energy/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "harness/lib/data/series.h"
#include "scenarios/energy/config.h"

namespace lockstep {
namespace {

/// Two channels; the value at (series, t, channel) says where it stands.
SeriesSet ramps(int series, int steps) {
  SeriesSet set;
  set.channels = 2;
  for (int s = 0; s < series; ++s) {
    std::vector<float> values;
    for (int t = 0; t < steps; ++t) {
      values.push_back(static_cast<float>(1000 * s + t));
      values.push_back(static_cast<float>(-1000 * s - t));
    }
    set.series.push_back(values);
  }
  return set;
}

ChannelScale unscaled() { return {{0.0, 0.0}, {1.0, 1.0}}; }

std::vector<int> all_of(const SeriesSet& set) {
  std::vector<int> indices(set.series.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

PairConfig config_of(int context, int action, int stride) {
  PairConfig config;
  config.context_steps = context;
  config.action_steps = action;
  config.stride = stride;
  config.min_context = context;
  return config;
}

TEST(Windows, HoldOutIsSpreadOverTheClassBlocks) {
  EXPECT_THAT(holdout_indices(40, 4), testing::ElementsAre(9, 19, 29, 39));
  EXPECT_THAT(holdout_indices(7, 3), testing::ElementsAre(1, 3, 6));
  EXPECT_THAT(holdout_indices(3, 3), testing::ElementsAre(0, 1, 2));
  EXPECT_TRUE(holdout_indices(5, 0).empty());
}

TEST(Windows, CountsEveryStrideThStartThatFits) {
  EXPECT_EQ(pairs_of(100, config_of(16, 8, 2)), 39);
  EXPECT_EQ(pairs_of(24, config_of(16, 8, 2)), 1);
  EXPECT_EQ(pairs_of(23, config_of(16, 8, 2)), 0);
  EXPECT_EQ(pairs_of(25, config_of(16, 8, 2)), 1);
  EXPECT_EQ(pairs_of(26, config_of(16, 8, 2)), 2);
}

TEST(Windows, ActionsFollowTheirContexts) {
  const SeriesSet set = ramps(3, 20);
  const std::vector<int> chosen{0, 2};
  const Windows windows = make_windows(set, chosen, unscaled(), config_of(4, 3, 5), WindowPart::train);
  ASSERT_EQ(windows.size(), 6u);  // starts 0, 5, 10 of two series
  for (std::size_t pair = 0; pair < 6; ++pair) {
    const auto first = static_cast<float>((pair < 3 ? 0 : 2000) + 5 * (pair % 3));
    for (std::size_t t = 0; t < 4; ++t) {
      EXPECT_EQ(windows.contexts[(pair * 4 + t) * 2], first + static_cast<float>(t));
      EXPECT_EQ(windows.contexts[(pair * 4 + t) * 2 + 1], -first - static_cast<float>(t));
      EXPECT_EQ(windows.context_mask[pair * 4 + t], 1);
    }
    for (std::size_t t = 0; t < 3; ++t)
      EXPECT_EQ(windows.actions[(pair * 3 + t) * 2], first + 4 + static_cast<float>(t));
  }
}

TEST(Windows, SeriesOfUnequalLengthGiveUnequallyManyPairs) {
  SeriesSet set = ramps(2, 20);
  set.series[0].resize(2 * 9);
  EXPECT_EQ(make_windows(set, all_of(set), unscaled(), config_of(4, 3, 1), WindowPart::test).size(),
            3u + 14u);
}

TEST(Windows, ShortContextsAreMaskedAtTheFront) {
  const SeriesSet set = ramps(4, 100);
  PairConfig config = config_of(16, 8, 2);
  config.min_context = 5;
  const Windows windows = make_windows(set, all_of(set), unscaled(), config, WindowPart::train);
  const Windows whole = make_windows(set, all_of(set), unscaled(), config_of(16, 8, 2), WindowPart::train);
  ASSERT_EQ(windows.actions, whole.actions);
  std::vector<int> lengths(17, 0);
  for (std::size_t pair = 0; pair < windows.size(); ++pair) {
    const auto kept =
        static_cast<std::size_t>(keyed_context_length(config, WindowPart::train, static_cast<int64_t>(pair)));
    ++lengths.at(kept);
    for (std::size_t t = 0; t < 16; ++t) {
      const bool real = t >= 16 - kept;
      ASSERT_EQ(windows.context_mask[pair * 16 + t], real ? 1 : 0);
      const std::size_t at = (pair * 16 + t) * 2;
      ASSERT_EQ(windows.contexts[at], real ? whole.contexts[at] : 0.0f);
    }
  }
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.begin() + 5, 0), 0);
  for (std::size_t length = 5; length <= 16; ++length) EXPECT_GT(lengths[length], 0) << length;
}

TEST(Windows, ContextLengthsOfThePartsAreDrawnApart) {
  PairConfig config = config_of(16, 8, 2);
  config.min_context = 1;
  int differing = 0;
  for (int64_t pair = 0; pair < 100; ++pair) {
    differing += keyed_context_length(config, WindowPart::train, pair) !=
                 keyed_context_length(config, WindowPart::test, pair);
  }
  EXPECT_GT(differing, 70);
}

TEST(ChannelScale, StandardisesByTheChosenSeriesAlone) {
  const SeriesSet set = ramps(3, 50);
  const std::vector<int> chosen{0};
  const ChannelScale scale = channel_scale(set, chosen);
  EXPECT_DOUBLE_EQ(scale.mean[0], 24.5);
  EXPECT_DOUBLE_EQ(scale.mean[1], -24.5);
  EXPECT_DOUBLE_EQ(scale.sd[0], std::sqrt((50.0 * 50.0 - 1.0) / 12.0));
  EXPECT_NE(channel_scale(set, all_of(set)).mean[0], 24.5);
}

TEST(ChannelScale, KeepsAConstantChannelFinite) {
  SeriesSet set;
  set.channels = 2;
  for (int s = 0; s < 3; ++s) set.series.push_back({0.1f, 1.0f, 0.1f, 2.0f, 0.1f, 3.0f});
  const ChannelScale scale = channel_scale(set, all_of(set));
  EXPECT_EQ(scale.sd[0], 1.0);
  EXPECT_EQ(scale.mean[0], static_cast<double>(0.1f));
  const Windows windows = make_windows(set, all_of(set), scale, config_of(2, 1, 1), WindowPart::train);
  EXPECT_EQ(windows.contexts[0], 0.0f);
}

TEST(ChannelScale, DoesNotCancelFarFromZero) {
  SeriesSet set;
  set.channels = 1;
  set.series.push_back({1e7f, 1e7f + 1, 1e7f + 2, 1e7f + 3});
  EXPECT_DOUBLE_EQ(channel_scale(set, all_of(set)).sd[0], std::sqrt(1.25));
}

}  // namespace
}  // namespace lockstep
