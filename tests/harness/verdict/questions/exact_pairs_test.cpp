// A cell's first steps in exact arithmetic, and what the judge makes of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/plan/plan.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::SyntheticMatrix;
using testing::HasSubstr;

const CellResult& cell_of(const Results& results, const std::string& name) {
  return *std::ranges::find(results.cells, name, &CellResult::scenario);
}

/// The usual matrix with the exact pair of its first cell, which parts at that step; -1: it does not.
SyntheticMatrix with_exact_pair(int64_t parts_at) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.plan.matrix.certify.exact = 50;
  for (const Cell& cell : std::vector<Cell>(matrix.plan.matrix.cells)) {
    const std::optional<ExactPair> pair = exact_pair_of(matrix.plan.matrix, cell);
    if (!pair) continue;
    const std::string own = cell.name + " exact", reference = cell.name + " exact reference";
    matrix.add_run(RunRole::exact_cell, own, pair->cell, 0);
    matrix.add_run(RunRole::exact_reference, reference, pair->reference, 0);
    matrix.results_of(SyntheticMatrix::id_of(own, 0), 8);
    matrix.results_of(SyntheticMatrix::id_of(reference, 0), 1);
    Mechanism& mechanism = matrix.mechanisms[SyntheticMatrix::id_of(own, 0)];
    mechanism.verdict = VerdictKind::identical;
    mechanism.compared_steps = 50;
    if (parts_at < 0 || cell.name != "8x3 global") continue;
    mechanism.verdict = VerdictKind::divergent;
    mechanism.first_divergence = Divergence{parts_at, "energies", 3, "inputs", DivergenceKind::bits, "a", "b", "Step 7."};
    mechanism.first_divergence->row = 11;
  }
  return matrix;
}

TEST(ExactPairs, StandBesideTheVerdict) {
  const Results same = with_exact_pair(-1).judge();
  const CellResult& equal = cell_of(same, "8x3 global");
  ASSERT_TRUE(equal.exact.has_value());
  EXPECT_EQ(equal.exact->steps, 50);
  EXPECT_EQ(equal.exact->asked, 50);
  EXPECT_FALSE(equal.exact->divergence.has_value());
  EXPECT_FALSE(cell_of(same, "8x3 global lr_scale=0.125").exact.has_value()) << "a power control is another run by design";
  EXPECT_THAT(same.summary.sentence, HasSubstr("exact arithmetic"));

  SyntheticMatrix half = with_exact_pair(-1);
  half.mechanisms[SyntheticMatrix::id_of("8x3 global exact", 0)].compared_steps = 20;
  EXPECT_EQ(cell_of(half.judge(), "8x3 global").exact->steps, 20) << "no more than was compared";

  const Results parted = with_exact_pair(7).judge();
  const CellResult& apart = cell_of(parted, "8x3 global");
  ASSERT_TRUE(apart.exact && apart.exact->divergence);
  EXPECT_EQ(apart.exact->steps, 7);
  EXPECT_EQ(apart.exact->divergence->row, 11);
  EXPECT_EQ(apart.verdict, equal.verdict) << "the verdict is that of the runs that were asked for";
}

TEST(ExactPairs, ARunThatFailedOrIsNotThereFailsItsCell) {
  SyntheticMatrix matrix = with_exact_pair(-1);
  matrix.result(SyntheticMatrix::id_of("8x3 global exact", 0), 5).status = "failed";
  EXPECT_TRUE(cell_of(matrix.judge(), "8x3 global").failure.has_value());
  SyntheticMatrix lost = with_exact_pair(-1);
  std::erase_if(lost.plan.runs, [](const PlannedRun& run) { return run.cell == "8x3 global exact"; });
  const Results results = lost.judge();
  ASSERT_TRUE(cell_of(results, "8x3 global").failure.has_value());
  EXPECT_THAT(cell_of(results, "8x3 global").failure->message, HasSubstr("no exact pair of 8x3 global"));
}

}  // namespace
}  // namespace lockstep
