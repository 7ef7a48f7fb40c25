// A cell's planned runs where two cells are one run with two references.

#include "harness/verdict/evidence/arms.h"
#include "harness/verdict/plan/read_matrix.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(PlannedArms, OfOneRunWithTwoReferencesKeepTheirForcedRunsApart) {
  const Matrix matrix = parse_matrix(
      "# Is it the same?\nname: arms\nseeds: 0..1\nquestion: outcome\nsteps: 40\nallow_unequal_batch: true\n"
      "reference: {same_as: cell, layout: 1x24, lr_scale: 1}\naxes: {layout: [8x3], negatives: [local]}\n"
      "include:\n  - {reference: {layout: 1x3, steps: 320}}\n  - {lr_scale: 0.125}\n"
      "power_controls: [{lr_scale: 0.125}]\n",
      "arms.yaml", {});
  const Plan plan = make_plan(matrix, "/nowhere", {});
  const PlannedArms arms(plan);
  const Cell &own = matrix.cells[0], &grown = matrix.cells[1];
  ASSERT_EQ(grown.name, "8x3 local against 1x3");
  // The run and its real prefix serve both; the gradients at 1x24's snapshots serve one.
  EXPECT_EQ(arms.pair_seeds(own)[1].cell, arms.pair_seeds(grown)[1].cell);
  EXPECT_NE(arms.pair_seeds(own)[1].reference, arms.pair_seeds(grown)[1].reference);
  EXPECT_NE(arms.single_run(grown, RunRole::certify), nullptr);
  EXPECT_NE(arms.single_run(own, RunRole::forced_cell), nullptr);
  EXPECT_EQ(arms.single_run(grown, RunRole::forced_cell), nullptr);
  EXPECT_TRUE(arms.forced_runs(grown).empty());
}

}  // namespace
}  // namespace lockstep
