// Cells that differ from their reference in arithmetic alone keep what shows how far rounding carries them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/verdict/plan/drift.h"
#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kConfig =
    "# How far?\nname: drift\nquestion: outcome\nseeds: [0, 1]\nsteps: 300\nreference: {layout: 1x24}\n"
    "axes: {layout: [1x24], arithmetic: [exact]}\n"
    "include:\n  - {layout: 1x24, lr_scale: 0.5}\n  - {layout: 8x3, arithmetic: exact}\n"
    "power_controls:\n  - {lr_scale: 0.5}\n";

TEST(Drift, StepsAreSpreadEvenlyOverTheDecades) {
  EXPECT_THAT(drift_steps(300), ElementsAre(1, 2, 5, 10, 20, 50, 100, 200, 299));
  EXPECT_THAT(drift_steps(3), ElementsAre(1, 2));
  EXPECT_THAT(drift_steps(2), ElementsAre(1));
  EXPECT_THAT(drift_steps(1), IsEmpty());
}

TEST(Drift, IsOfCellsThatDifferInArithmeticAlone) {
  const Matrix matrix = parse(kConfig);
  ASSERT_EQ(matrix.cells.size(), 3u);
  EXPECT_TRUE(rounds_alone(matrix.cells[0]));
  EXPECT_FALSE(rounds_alone(matrix.cells[1])) << "another rate is no rounding";
  EXPECT_FALSE(rounds_alone(matrix.cells[2])) << "another layout may be another mistake";
}

TEST(Drift, BothSidesKeepSnapshotsAndTheReferenceIsTrainedOnceForAllCells) {
  const Plan plan = make_plan(parse(kConfig), "", {});
  for (const PlannedRun& run : plan.runs) {
    const bool kept = run.role == RunRole::reference || run.cell == "1x24 arithmetic=exact";
    EXPECT_EQ(run.config.snapshot_steps, kept ? drift_steps(300) : std::vector<int64_t>{}) << run.id;
  }
  const auto references = std::ranges::count(plan.runs, RunRole::reference, &PlannedRun::role);
  EXPECT_EQ(references, 2) << "one a seed";
}

TEST(Drift, AMatrixOfOneArithmeticKeepsNothingForIt) {
  const Matrix matrix = parse("# So?\nname: d\nsteps: 300\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n");
  for (const Cell& cell : matrix.cells) {
    EXPECT_THAT(cell.config.snapshot_steps, IsEmpty());
    EXPECT_THAT(cell.reference.snapshot_steps, IsEmpty());
  }
}

}  // namespace
}  // namespace lockstep
