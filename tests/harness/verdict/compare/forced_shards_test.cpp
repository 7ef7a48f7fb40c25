// Updates of matrices of which ranks hold parts: parts that stand still, and optimizers of whole matrices that work on each part.

#include "harness/verdict/compare/forced/shards.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Values = std::vector<double>;
using Shape = std::vector<int64_t>;

Record part(Phase phase, const Shape& shape, const Shape& whole, const Shape& offset, uint64_t hash, double norm = 1) {
  Record record;
  record.phase = phase;
  record.name = "w";
  record.shape = shape;
  record.has_stats = true;
  record.stats.hash = hash;
  record.stats.norm = norm;
  record.placement = std::make_shared<const Placement>(Placement{true, whole, offset});
  return record;
}

/// Two ranks with a row each, whose parameters have these hashes and gradients these norms, at step 4.
StepOfRun rows_of(const std::vector<uint64_t>& hashes, const std::vector<double>& norms, const Shape& shape = {1, 3}) {
  StepOfRun step;
  step.step = 4;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    const Shape offset{static_cast<int64_t>(rank), 0};
    step.ranks.push_back({});
    step.parts.push_back({part(Phase::parameters, shape, {2, 3}, offset, hashes[rank]), part(Phase::reduced_gradients, shape, {2, 3}, offset, 5, norms[rank])});
  }
  return step;
}

/// The same a step earlier.
StepOfRun step_before() {
  StepOfRun step = rows_of({10, 20}, {1, 1});
  step.step = 3;
  return step;
}

TEST(ShardStoodStill, IsAPartThatKeptItsBitsThoughItsGradientIsNotZeroAndOthersMoved) {
  const StepOfRun before = step_before(), now = rows_of({11, 20}, {1, 1});
  EXPECT_TRUE(shard_stood_still(now, {.step = &before}, 1, "w"));
  EXPECT_FALSE(shard_stood_still(now, {.step = &before}, 0, "w")) << "it moved";
  EXPECT_FALSE(shard_stood_still(now, {.step = &before}, 1, "v")) << "there is no such tensor";
  EXPECT_FALSE(shard_stood_still(now, {.step = &before}, 7, "w")) << "nor such a rank";
}

TEST(ShardStoodStill, IsNoneWhereNothingShouldHaveMoved) {
  const StepOfRun before = step_before();
  EXPECT_FALSE(shard_stood_still(rows_of({11, 20}, {1, 0}), {.step = &before}, 1, "w")) << "its gradient is 0";
  EXPECT_FALSE(shard_stood_still(rows_of({10, 20}, {1, 1}), {.step = &before}, 1, "w")) << "no part moved: the update was left out";
  EXPECT_FALSE(shard_stood_still(rows_of({11, 20}, {1, 1}, {0, 3}), {.step = &before}, 1, "w")) << "a part without elements";
  StepOfRun elsewhere = rows_of({11, 20}, {1, 1});
  elsewhere.parts[1][0] = part(Phase::parameters, {1, 3}, {2, 3}, {0, 0}, 20);
  EXPECT_FALSE(shard_stood_still(elsewhere, {.step = &before}, 1, "w")) << "another place than before";
}

/// A gradient that is nearly 0 may move nothing: the reference shows whether it should have.
TEST(ShardStoodStill, MustHaveMovedInTheReferenceByMoreThanRounding) {
  const StepOfRun now = rows_of({11, 20}, {1, 1});
  const Snapshot state{{{"w", {2, 3}, {1, 1, 1, 2, 2, 2}}}, 4.0};
  const std::vector<NamedTensor> after = {{"w", {2, 3}, {0.9, 1, 1, 2, 2, 2}}}, far = {{"w", {2, 3}, {0.9, 1, 1, 2.1, 2, 2}}}, near = {{"w", {2, 3}, {0.9, 1, 1, 2.0000002, 2, 2}}};
  EXPECT_TRUE(shard_stood_still(now, {&state, nullptr, &after, &state, &far}, 1, "w"));
  EXPECT_FALSE(shard_stood_still(now, {&state, nullptr, &after, &state, &near}, 1, "w"));
}

/// One matrix "w" that both runs begin with alike and have one gradient of.
ForcedEvidence moved(const Shape& shape, const Values& gradient, const Values& of_reference, const Values& of_cell) {
  ForcedEvidence evidence;
  const Values begin(gradient.size(), 0.5);
  const auto after = [&](const Values& change) {
    Values values = begin;
    for (std::size_t i = 0; i < change.size(); ++i) values[i] += change[i];
    return std::vector<NamedTensor>{{"w", shape, values}};
  };
  evidence.reference.gradients = evidence.cell.gradients = {{"w", shape, gradient}};
  evidence.reference.parameters = after(of_reference);
  evidence.cell.parameters = after(of_cell);
  evidence.state = evidence.reference_state = std::make_shared<const Snapshot>(Snapshot{{{"w", shape, begin}}, 0.0});
  evidence.reduced.tensors = {{"w", {0, 1e-6}, norm(gradient), norm(gradient)}};
  return evidence;
}

Values times(Values values, double factor, std::size_t from = 0) {
  for (std::size_t i = from; i < values.size(); ++i) values[i] *= factor;
  return values;
}

const Values kGradient{0.6, -0.8, 0.3, 0.2, 0.5, -0.4};

TEST(UnlikeUpdateOf, IsNoneWhereBothMoveAlike) {
  const Values change = times(kGradient, -0.1);
  EXPECT_FALSE(unlike_update(moved({2, 3}, kGradient, change, change)));
  EXPECT_FALSE(unlike_update(moved({2, 3}, kGradient, change, times(change, 1.04)))) << "within a twentieth";
}

TEST(UnlikeUpdateOf, TellsHowFarTheChangesLieApart) {
  const Values change = times(kGradient, -0.1);
  const auto found = unlike_update(moved({2, 3}, kGradient, change, times(change, 2)));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "w");
  EXPECT_NEAR(found->expected, norm(change), 1e-12);
  EXPECT_NEAR(found->actual, 2 * norm(change), 1e-12);
  EXPECT_NEAR(found->gap, norm(change), 1e-12);
}

TEST(UnlikeUpdateOf, AsksNotWhatAnOptimizerMakesOfAGradientOfRoundingAlone) {
  Values gradient = kGradient, change = times(kGradient, -0.1), other = change;
  gradient[5] = 1e-7;
  other[5] = 0.3;
  EXPECT_FALSE(unlike_update(moved({2, 3}, gradient, change, other)));
  gradient[5] = 0.01;
  EXPECT_TRUE(unlike_update(moved({2, 3}, gradient, change, other)));
}

TEST(UnlikeUpdateOf, NeedsWhatBothBeganWith) {
  ForcedEvidence evidence = moved({2, 3}, kGradient, times(kGradient, -0.1), times(kGradient, -0.2));
  evidence.reference_state = nullptr;
  EXPECT_FALSE(unlike_update(evidence));
}

/// Every rank's part of "w": rows or columns, one each.
StepOfRun partitioned(const Shape& whole, std::size_t dim) {
  StepOfRun step;
  for (int64_t k = 0; k < whole[dim]; ++k) {
    Shape shape = whole, offset(2, 0);
    shape[dim] = 1;
    offset[dim] = k;
    step.ranks.push_back({});
    step.parts.push_back({part(Phase::parameters, shape, whole, offset, 1)});
  }
  return step;
}

/// Along each row over its length, as a trust ratio of each part by itself is.
Values by_own_length(Values gradient, std::size_t width) {
  for (std::size_t row = 0; row < gradient.size(); row += width) {
    double size = 0;
    for (std::size_t i = row; i < row + width; ++i) size = std::hypot(size, gradient[i]);
    for (std::size_t i = row; i < row + width; ++i) gradient[i] *= -0.1 / size;
  }
  return gradient;
}

TEST(UpdatesByShard, FactorsOfEachPartAreTold) {
  const Values whole = times(kGradient, -0.1 / norm(kGradient));
  const ShardUpdates found = updates_by_shard(moved({2, 3}, kGradient, whole, by_own_length(kGradient, 3)), partitioned({2, 3}, 0));
  EXPECT_THAT(found.tensors, ElementsAre("w"));
  EXPECT_TRUE(found.exact);
  EXPECT_THAT(found.how, HasSubstr("times the reference's change, part by part"));
}

TEST(UpdatesByShard, OneFactorOfAllPartsIsNoneOfEachPart) {
  const Values whole = times(kGradient, -0.1);
  EXPECT_THAT(updates_by_shard(moved({2, 3}, kGradient, whole, times(whole, 2)), partitioned({2, 3}, 0)).tensors, IsEmpty());
  EXPECT_THAT(updates_by_shard(moved({2, 3}, kGradient, whole, whole), partitioned({2, 3}, 0)).tensors, IsEmpty()) << "and no difference neither";
}

TEST(UpdatesByShard, ChangesAlongOrthogonalFactorsOfPartsAreTold) {
  // G = [[3, 0, 4], [0, 5, 0]] / 10 has the orthogonal factor [[0.6, 0, 0.8], [0, 1, 0]]; of its columns each has its own.
  const Values gradient{0.3, 0, 0.4, 0, 0.5, 0}, whole{-0.06, 0, -0.08, 0, -0.1, 0}, columns{-0.1, 0, -0.1, 0, -0.1, 0};
  EXPECT_THAT(updates_by_shard(moved({2, 3}, gradient, whole, columns), partitioned({2, 3}, 1)).tensors, ElementsAre("w"));
  // G = [[1, 1], [0, 1]]: the factor of the whole is [[2, 1], [-1, 2]] / sqrt(5), that of each row the row over its length.
  const double fifth = 0.1 / std::sqrt(5), half = 0.1 / std::sqrt(2);
  const Values shear{1, 1, 0, 1}, of_whole{-2 * fifth, -fifth, fifth, -2 * fifth}, of_rows{-half, -half, 0, -0.1};
  const ShardUpdates found = updates_by_shard(moved({2, 2}, shear, of_whole, of_rows), partitioned({2, 2}, 0));
  EXPECT_THAT(found.tensors, ElementsAre("w"));
  EXPECT_THAT(found.how, HasSubstr("orthogonal factor of its own gradient"));
  const Values neither{-0.1, 0.02, 0.05, -0.1};
  EXPECT_THAT(updates_by_shard(moved({2, 2}, shear, of_whole, neither), partitioned({2, 2}, 0)).tensors, IsEmpty());
}

TEST(UpdatesByShard, OfATensorThatIsNotPartitionedTellNothing) {
  const Values whole = times(kGradient, -0.1 / norm(kGradient));
  const ForcedEvidence evidence = moved({2, 3}, kGradient, whole, by_own_length(kGradient, 3));
  EXPECT_THAT(updates_by_shard(evidence, StepOfRun{}).tensors, IsEmpty());
}

}  // namespace
}  // namespace lockstep
