#include "harness/verdict/evidence/parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/trace/record.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Shape = std::vector<int64_t>;

/// What a rank records of its part, as a reader gives it.
struct PartOf {
  Phase phase = Phase::parameters;
  Shape whole, offset;
  bool shard = true, values = true;
};

Record record_of(const PartOf& it, const Shape& shape, const std::vector<float>& values) {
  Record record;
  record.phase = it.phase;
  record.name = "w";
  record.shape = shape;
  record.has_stats = true;
  Shape positions(shape.empty() ? 0 : static_cast<std::size_t>(shape[0]));
  std::iota(positions.begin(), positions.end(), it.offset.empty() ? 0 : it.offset[0]);
  record.stats = tensor_stats({values.data(), DType::float32, shape, positions});
  record.hashed = Hashed::rows;
  record.placement = std::make_shared<const Placement>(Placement{it.shard, it.whole, it.offset});
  if (it.values && !values.empty()) {
    record.payload.resize(values.size() * sizeof(float));
    std::memcpy(record.payload.data(), values.data(), record.payload.size());
  }
  return record;
}

StepOfRun step_of(const std::vector<std::vector<Record>>& ranks) {
  StepOfRun step;
  step.step = 3;
  for (const std::vector<Record>& records : ranks) step.ranks.push_back({3, records});
  return step;
}

const Record& whole_on(const StepOfRun& step, std::size_t rank) { return step.ranks[rank].records.front(); }

uint64_t hash_of(const std::vector<float>& values, const Shape& shape, const Shape& positions = {}) {
  return tensor_stats({values.data(), DType::float32, shape, positions}).hash;
}

const std::vector<float> kWhole{1, 2, 3, 4, 5, -6};  // [3, 2]

TEST(PutTogether, PartsOfRowsMakeTheWholeOnEveryRankWithItsValuesOnTheFirst) {
  StepOfRun step = step_of({{record_of({.whole = {3, 2}, .offset = {0, 0}}, {2, 2}, {1, 2, 3, 4})},
                            {record_of({.whole = {3, 2}, .offset = {2, 0}}, {1, 2}, {5, -6})}});
  put_together(step);
  for (const std::size_t rank : {0u, 1u}) {
    const Record& whole = whole_on(step, rank);
    EXPECT_THAT(whole.shape, ElementsAre(3, 2));
    EXPECT_TRUE(whole.replicated);
    EXPECT_EQ(whole.stats.hash, hash_of(kWhole, {3, 2})) << "that of a tensor which nobody partitioned";
    EXPECT_EQ(whole.hashed, Hashed::whole);
    EXPECT_FLOAT_EQ(static_cast<float>(whole.stats.norm), 9.539392F);
    EXPECT_EQ(whole.stats.min, -6);
    EXPECT_EQ(whole.stats.max, 5);
  }
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(1, 2, 3, 4, 5, -6));
  EXPECT_FALSE(values_of(whole_on(step, 1)));
  ASSERT_EQ(step.parts.size(), 2u);
  ASSERT_EQ(step.parts[1].size(), 1u);
  EXPECT_THAT(step.parts[1][0].shape, ElementsAre(1, 2)) << "what the rank held is kept";
  EXPECT_THAT(step.bearers, IsEmpty());
}

TEST(PutTogether, PartsOfColumnsStandAtTheirPlaces) {
  StepOfRun step = step_of({{record_of({.whole = {2, 3}, .offset = {0, 0}}, {2, 1}, {1, 4})},
                            {record_of({.whole = {2, 3}, .offset = {0, 1}}, {2, 2}, {2, 3, 5, -6})}});
  put_together(step);
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(1, 2, 3, 4, 5, -6));
  EXPECT_EQ(whole_on(step, 0).stats.hash, hash_of(kWhole, {2, 3}));
  EXPECT_EQ(whole_on(step, 1).stats.hash, whole_on(step, 0).stats.hash);
}

TEST(PutTogether, PartsOfAMeshOfTwoDimensionsStandAtTheirPlaces) {
  std::vector<std::vector<Record>> ranks;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto value = static_cast<float>(rank);
    ranks.push_back({record_of({.whole = {2, 2, 2}, .offset = {rank / 2, rank % 2, 0}}, {1, 1, 2}, {value, 10 + value})});
  }
  StepOfRun step = step_of(ranks);
  put_together(step);
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(0, 10, 1, 11, 2, 12, 3, 13));
}

TEST(PutTogether, AnEmptyPartAddsNothingAndNoExtremes) {
  StepOfRun step = step_of({{record_of({.whole = {2}, .offset = {0}}, {1}, {3})},
                            {record_of({.whole = {2}, .offset = {1}}, {1}, {4})},
                            {record_of({.whole = {2}, .offset = {2}}, {0}, {})}});
  put_together(step);
  EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(3, 4));
  EXPECT_EQ(whole_on(step, 2).stats.min, 3) << "and not the 0 of a part without elements";
  EXPECT_EQ(whole_on(step, 2).stats.max, 4);
  EXPECT_THAT(whole_on(step, 2).shape, ElementsAre(2));
}

TEST(PutTogether, ARankThatLeavesItsEmptyPartOutHasTheWholeToo) {
  StepOfRun step = step_of({{record_of({.whole = {1}, .offset = {0}}, {1}, {3})}, {}});
  put_together(step);
  ASSERT_EQ(step.ranks[1].records.size(), 1u);
  EXPECT_EQ(whole_on(step, 1).stats.hash, hash_of({3}, {1}));
}

TEST(PutTogether, WithoutValuesHashesOfRowsAddUpAndThoseOfColumnsAreOfParts) {
  const auto part = [](const Shape& whole, const Shape& offset, const Shape& shape, const std::vector<float>& values) {
    return record_of({.whole = whole, .offset = offset, .values = false}, shape, values);
  };
  StepOfRun rows = step_of({{part({3, 2}, {0, 0}, {2, 2}, {1, 2, 3, 4})}, {part({3, 2}, {2, 0}, {1, 2}, {5, -6})}});
  put_together(rows);
  EXPECT_EQ(whole_on(rows, 0).hashed, Hashed::rows);
  EXPECT_EQ(whole_on(rows, 0).stats.hash, hash_of(kWhole, {3, 2}, {0, 1, 2}));
  EXPECT_TRUE(whole_on(rows, 0).payload.empty());
  StepOfRun columns = step_of({{part({2, 3}, {0, 0}, {2, 1}, {1, 4})}, {part({2, 3}, {0, 1}, {2, 2}, {2, 3, 5, -6})}});
  StepOfRun other = step_of({{part({2, 3}, {0, 0}, {2, 1}, {1, 4})}, {part({2, 3}, {0, 1}, {2, 2}, {2, 3, 5, 6})}});
  put_together(columns);
  put_together(other);
  EXPECT_EQ(whole_on(columns, 0).hashed, Hashed::parts) << "to be compared with no other kind";
  EXPECT_NE(whole_on(columns, 0).stats.hash, whole_on(other, 0).stats.hash);
}

TEST(PutTogether, ARankWhosePartIsNotThatOfItsReplicaKeepsAWholeOfItsOwn) {
  const auto half = [](int64_t begin, float value) { return record_of({.whole = {4}, .offset = {begin}}, {2}, {value, value + 1}); };
  StepOfRun step = step_of({{half(0, 1)}, {half(2, 3)}, {half(0, 1)}, {half(2, 3)}});
  put_together(step);
  for (const std::size_t rank : {1u, 2u, 3u}) EXPECT_EQ(whole_on(step, rank).stats.hash, whole_on(step, 0).stats.hash);
  StepOfRun wrong = step_of({{half(0, 1)}, {half(2, 3)}, {half(0, 1)}, {half(2, 7)}});
  put_together(wrong);
  for (const std::size_t rank : {0u, 1u, 2u}) EXPECT_EQ(whole_on(wrong, rank).stats.hash, hash_of({1, 2, 3, 4}, {4}));
  EXPECT_EQ(whole_on(wrong, 3).stats.hash, hash_of({1, 2, 7, 8}, {4}));
}

TEST(PutTogether, WhatIsNotAllThereStaysInParts) {
  const Record first = record_of({.whole = {4}, .offset = {0}}, {2}, {1, 2});
  Record of_other_whole = record_of({.whole = {5}, .offset = {2}}, {2}, {3, 4}), of_other_type = record_of({.whole = {4}, .offset = {2}}, {2}, {3, 4});
  of_other_type.dtype = DType::int32;
  for (const Record& second : {record_of({.whole = {4}, .offset = {2}}, {1}, {3}), of_other_whole, of_other_type}) {
    StepOfRun step = step_of({{first}, {second}});
    put_together(step);
    EXPECT_THAT(whole_on(step, 0).shape, ElementsAre(2));
    EXPECT_FALSE(whole_on(step, 0).replicated);
    ASSERT_EQ(step.parts.size(), 2u);
    EXPECT_THAT(step.parts[0], IsEmpty());
  }
}

TEST(PutTogether, OfWhatIsARanksOwnTheFirstRankOfEachGroupHasTheWhole) {
  for (const Phase phase : {Phase::local_gradients, Phase::gradient_parts, Phase::inputs}) {
    const auto half = [&](int64_t begin, float value) { return record_of({.phase = phase, .whole = {4}, .offset = {begin}}, {2}, {value, value + 1}); };
    // Tensor-parallel pairs 0, 1 and 2, 3, each with rows and gradients of its own.
    StepOfRun step = step_of({{half(0, 1)}, {half(2, 3)}, {half(0, 5)}, {half(2, 7)}});
    put_together(step);
    EXPECT_THAT(values_of(whole_on(step, 0)).value(), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(values_of(whole_on(step, 2)).value(), ElementsAre(5, 6, 7, 8));
    EXPECT_THAT(step.ranks[1].records, IsEmpty());
    EXPECT_THAT(step.ranks[3].records, IsEmpty());
    EXPECT_FALSE(whole_on(step, 0).replicated) << "the groups' are not alike";
    if (phase == Phase::local_gradients) EXPECT_THAT(step.bearers, ElementsAre(0, 2));
    else EXPECT_THAT(step.bearers, IsEmpty());
  }
}

TEST(PutTogether, OwnPartsOfWhichRanksHoldUnequalNumbersStayInParts) {
  const auto half = [](int64_t begin) { return record_of({.phase = Phase::local_gradients, .whole = {4}, .offset = {begin}}, {2}, {1, 2}); };
  StepOfRun step = step_of({{half(0)}, {half(2)}, {half(0)}});
  put_together(step);
  for (const std::size_t rank : {0u, 1u, 2u}) EXPECT_THAT(whole_on(step, rank).shape, ElementsAre(2));
  EXPECT_THAT(step.bearers, IsEmpty());
}

TEST(PutTogether, WhatIsPlacedAsReplicatedIsHashedInOnePieceAndHeldToBeAlike) {
  const PartOf replicated{.whole = {3, 2}, .offset = {0, 0}, .shard = false};
  StepOfRun step = step_of({{record_of(replicated, {3, 2}, kWhole)}, {record_of(replicated, {3, 2}, kWhole)}});
  put_together(step);
  EXPECT_TRUE(whole_on(step, 0).replicated && whole_on(step, 1).replicated);
  EXPECT_EQ(whole_on(step, 1).stats.hash, hash_of(kWhole, {3, 2}));
  EXPECT_THAT(step.parts, IsEmpty());
  PartOf own = replicated;
  own.phase = Phase::local_gradients;
  StepOfRun gradients = step_of({{record_of(own, {3, 2}, kWhole)}});
  put_together(gradients);
  EXPECT_FALSE(whole_on(gradients, 0).replicated) << "each rank has its own gradient of what all hold alike";
}

TEST(PutTogether, KeepsTheOrderInWhichARankRecorded) {
  Record before = record_of({.whole = {1}, .offset = {0}, .shard = false}, {1}, {9}), behind = before;
  before.name = "before";
  behind.name = "behind";
  const auto half = [](int64_t begin) { return record_of({.whole = {2}, .offset = {begin}}, {1}, {1}); };
  StepOfRun step = step_of({{before, half(0), behind}, {before, half(1), behind}});
  put_together(step);
  for (const StepRecords& rank : step.ranks) {
    ASSERT_EQ(rank.records.size(), 3u);
    EXPECT_EQ(rank.records[0].name, "before");
    EXPECT_EQ(rank.records[1].name, "w");
    EXPECT_EQ(rank.records[2].name, "behind");
  }
}

/// A parameter's moment after an update on each rank, and the parameter, which all hold alike unless `parted`. No value: the rank has no moment.
StepOfRun owned(int64_t number, const std::vector<std::optional<float>>& moments, const std::vector<double>& updates, bool parted = false) {
  StepOfRun step;
  step.step = number;
  for (std::size_t rank = 0; rank < moments.size(); ++rank) {
    const auto tensor = [&](Phase phase, const char* name, float value) {
      Record record = record_of({.phase = phase, .whole = {1}, .offset = {0}, .shard = false}, {1}, {value});
      record.name = name;
      record.placement = nullptr;
      return record;
    };
    std::vector<Record> records{tensor(Phase::parameters, "w", parted ? static_cast<float>(rank) : 1)};
    if (moments[rank]) records.push_back(tensor(Phase::optimizer_state, "first_moment/w", *moments[rank]));
    Record count;
    count.phase = Phase::optimizer_state;
    count.name = "updates";
    count.is_scalar = true;
    count.value = updates[rank];
    records.push_back(count);
    step.ranks.push_back({number, std::move(records)});
  }
  return step;
}

/// What each rank has of the moment and of the count; NaN: nothing.
std::vector<double> moments_in(const StepOfRun& step, const std::string& name) {
  std::vector<double> found;
  for (const StepRecords& rank : step.ranks) {
    const auto record = std::ranges::find(rank.records, name, &Record::name);
    found.push_back(record == rank.records.end() ? std::nan("") : record->is_scalar ? record->value : record->stats.norm);
  }
  return found;
}

TEST(OwnersState, IsThatOfTheRankOnWhichItMovedWhereAllHoldTheSameParameter) {
  OwnersState state;
  StepOfRun first = owned(0, {2, 3}, {4, 5}), second = owned(1, {2, 7}, {4, 6}), third = owned(2, {2, 7}, {4, 6});
  for (StepOfRun* step : {&first, &second, &third}) state.put_together(*step);
  EXPECT_THAT(moments_in(first, "first_moment/w"), ElementsAre(testing::IsNan(), testing::IsNan())) << "nothing says whose it is";
  EXPECT_THAT(moments_in(second, "first_moment/w"), ElementsAre(7, 7));
  EXPECT_THAT(moments_in(second, "updates"), ElementsAre(6, 6));
  EXPECT_THAT(moments_in(third, "first_moment/w"), ElementsAre(7, 7)) << "a step without a gradient changes no owner";
}

TEST(OwnersState, IsThatOfTheOneRankThatHasIt) {
  StepOfRun step = owned(0, {std::nullopt, 3}, {1, 1});
  OwnersState().put_together(step);
  EXPECT_THAT(moments_in(step, "first_moment/w"), ElementsAre(3, 3));
}

TEST(OwnersState, StaysEachRanksOwnWhereParametersPart) {
  StepOfRun step = owned(0, {2, 3}, {4, 5}, true);
  OwnersState().put_together(step);
  EXPECT_THAT(moments_in(step, "first_moment/w"), ElementsAre(2, 3));
  EXPECT_THAT(moments_in(step, "updates"), ElementsAre(4, 5));
}

}  // namespace
}  // namespace lockstep
