#include "harness/verdict/compare/exact.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using Ids = std::vector<int64_t>;

/// Labels of rows, `width` values for each.
Record labels(const Ids& ids, const Ids& values, const std::string& name = "labels") {
  Record record;
  record.phase = Phase::inputs;
  record.name = name;
  record.dtype = DType::int64;
  record.ids = ids;
  record.shape = {static_cast<int64_t>(ids.size())};
  if (values.size() != ids.size()) record.shape.push_back(static_cast<int64_t>(values.size() / ids.size()));
  record.payload.resize(values.size() * sizeof(int64_t));
  std::memcpy(record.payload.data(), values.data(), record.payload.size());
  return record;
}

StepOfRun step_of(const std::vector<std::vector<Record>>& ranks) {
  StepOfRun step;
  step.step = 5;
  for (const std::vector<Record>& records : ranks) step.ranks.push_back({5, records});
  return step;
}

auto inputs_difference(const StepOfRun& a, const StepOfRun& b) { return first_exact_difference(a, b, false); }

TEST(InputsDifference, IsNoneWhereEachSampleHoldsTheSameOnWhateverRank) {
  const StepOfRun one = step_of({{labels({7, 8, 9}, {70, 80, 90})}}), several = step_of({{labels({9, 7}, {90, 70})}, {labels({8}, {80})}});
  EXPECT_FALSE(inputs_difference(one, several));
  EXPECT_FALSE(inputs_difference(several, one));
}

TEST(InputsDifference, TellsSampleRankAndPlace) {
  const StepOfRun one = step_of({{labels({7, 8}, {1, 2, 3, 4, 5, 6})}}), other = step_of({{labels({7}, {1, 2, 3})}, {labels({8}, {4, 0, 6})}});
  const auto found = inputs_difference(one, other);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->phase, Phase::inputs);
  EXPECT_EQ(found->divergence.rank, 1);
  EXPECT_EQ(found->divergence.where, "labels");
  EXPECT_EQ(found->divergence.sample, 8);
  EXPECT_EQ(found->divergence.expected, "5 at place 1 of 3");
  EXPECT_EQ(found->divergence.actual, "0 at place 1 of 3");
}

TEST(InputsDifference, OnEveryRankIsTheRunsAsAWhole) {
  const auto found = inputs_difference(step_of({{labels({7, 8}, {1, 2})}}), step_of({{labels({7}, {5})}, {labels({8}, {6})}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->divergence.rank, kAllRanks);
  EXPECT_EQ(found->divergence.expected, "1");
  EXPECT_EQ(found->divergence.actual, "5");
}

TEST(InputsDifference, OfAnotherNumberOfPlacesIsToldSo) {
  const auto found = inputs_difference(step_of({{labels({7}, {1, 2, 3})}}), step_of({{labels({7}, {1, 2})}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->divergence.expected, "3 values");
  EXPECT_EQ(found->divergence.actual, "2 values");
}

TEST(InputsDifference, IsNoneInPlacesThatAreIgnored) {
  EXPECT_FALSE(inputs_difference(step_of({{labels({7}, {1, 2, -100, -100})}}), step_of({{labels({7}, {1, 2})}})));
  EXPECT_FALSE(inputs_difference(step_of({{labels({7}, {1, 2})}}), step_of({{labels({7}, {-1, 1, 2})}}))) << "padded at the beginning";
  EXPECT_TRUE(inputs_difference(step_of({{labels({7}, {1, 2, -100})}}), step_of({{labels({7}, {1, 3})}})));
  EXPECT_TRUE(inputs_difference(step_of({{labels({7}, {1, 2, -100})}}), step_of({{labels({7}, {1, -100})}}))) << "a row that is cut";
}

TEST(InputsDifference, IsNoneOfWhatOnlyOneRunHasOrWhoseIdsOrValuesWereNotKept) {
  const StepOfRun one = step_of({{labels({7, 8}, {1, 2})}});
  EXPECT_FALSE(inputs_difference(one, step_of({{labels({7, 8}, {5, 6}, "inputs")}}))) << "another name";
  EXPECT_FALSE(inputs_difference(one, step_of({{labels({17, 18}, {5, 6})}}))) << "other samples are told elsewhere";
  StepOfRun without_values = step_of({{labels({7, 8}, {5, 6})}}), without_ids = without_values;
  without_values.ranks[0].records[0].payload.clear();
  without_ids.ranks[0].records[0].ids.clear();
  EXPECT_FALSE(inputs_difference(one, without_values));
  EXPECT_FALSE(inputs_difference(one, without_ids));
}

TEST(InputsDifference, OfASampleThatAStepHasTwiceTheFirstCounts) {
  const StepOfRun one = step_of({{labels({7, 7}, {1, 9})}});
  EXPECT_FALSE(inputs_difference(one, step_of({{labels({7}, {1})}})));
  EXPECT_TRUE(inputs_difference(one, step_of({{labels({7}, {9})}})));
}

}  // namespace
}  // namespace lockstep
