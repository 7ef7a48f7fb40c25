#include "scenarios/energy/dataset.h"

#include <gtest/gtest.h>

#include <cstring>

#include "scenarios/energy/config.h"

namespace lockstep {
namespace {

PairConfig padded_config() {
  PairConfig config;
  config.source = DataSource::synthetic;
  config.series = 9;
  config.series_steps = 50;
  config.holdout_series = 2;
  config.min_context = 5;
  return config;
}

/// Does row `row` of `some` hold the bits of row `pair` of `all`?
testing::AssertionResult same_row(const Windows& some, std::size_t row, const Windows& all,
                                  std::size_t pair) {
  const auto context = static_cast<std::size_t>(all.context_steps) * static_cast<std::size_t>(all.channels);
  const auto action = static_cast<std::size_t>(all.action_steps) * static_cast<std::size_t>(all.channels);
  const auto steps = static_cast<std::size_t>(all.context_steps);
  const bool same =
      std::memcmp(&some.contexts[row * context], &all.contexts[pair * context], 4 * context) == 0 &&
      std::memcmp(&some.actions[row * action], &all.actions[pair * action], 4 * action) == 0 &&
      std::memcmp(&some.context_mask[row * steps], &all.context_mask[pair * steps], steps) == 0;
  return same ? testing::AssertionSuccess()
              : testing::AssertionFailure() << "row " << row << ", pair " << pair;
}

void expect_same_pairs(const PairConfig& config) {
  const Dataset data = load_dataset(config);
  const std::vector<int64_t> some = {17, 3, static_cast<int64_t>(data.train.size()) - 1, 0, 3};
  const Windows cut = data.training_pairs->cut(some);
  ASSERT_EQ(cut.size(), some.size());
  for (std::size_t row = 0; row < some.size(); ++row) {
    EXPECT_TRUE(same_row(cut, row, data.train, static_cast<std::size_t>(some[row])));
  }
  EXPECT_FALSE(same_row(cut, 0, data.train, 3)) << "this comparison can fail";
}

TEST(PairCutter, GivesAnyRowsTheBitsThatTheyHaveAmongAll) { expect_same_pairs(padded_config()); }

TEST(PairCutter, GivesThemInCorrelatedBlocksToo) {
  PairConfig config = padded_config();
  config.correlation = 0.7;
  config.block = 3;
  expect_same_pairs(config);
}

TEST(Dataset, WithoutCacheKeepsNoTrainingPairAndTheSameOthers) {
  PairConfig config = padded_config();
  const Dataset cached = load_dataset(config);
  config.cache = false;
  const Dataset cut = load_dataset(config);
  EXPECT_EQ(cut.train.size(), 0U);
  EXPECT_EQ(cut.train.channels, cached.train.channels);
  EXPECT_EQ(cut.training_pairs->size(), static_cast<int64_t>(cached.train.size()));
  EXPECT_EQ(cut.training_pairs->cut_all().contexts, cached.train.contexts);
  EXPECT_EQ(cut.test.contexts, cached.test.contexts);
  EXPECT_EQ(cut.holdout.actions, cached.holdout.actions);
  EXPECT_EQ(cut.description, cached.description);
  EXPECT_EQ(inspect_pairs(config).hash, inspect_pairs(padded_config()).hash);
}

}  // namespace
}  // namespace lockstep
