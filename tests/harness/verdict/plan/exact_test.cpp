// What a matrix may ask of exact arithmetic, and what it is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "harness/verdict/config/mutants.h"
#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kOutcome =
    "# Is it so?\nname: tiny\nquestion: outcome\nseeds: [4, 5]\nsteps: 300\n"
    "reference: {layout: 1x24}\naxes: {layout: [8x3]}\ninclude:\n  - {layout: 8x3, lr_scale: 0.125}\n"
    "power_controls:\n  - {lr_scale: 0.125}\n";

std::map<RunRole, int> roles_of(const Plan& plan) {
  std::map<RunRole, int> count;
  for (const PlannedRun& run : plan.runs) ++count[run.role];
  return count;
}

Plan plan_of(const std::string& text) { return make_plan(parse(text), "", {}); }

TEST(ExactPair, IsOfOneSeedOfEachCellButOfNoPowerControl) {
  const Plan plan = plan_of(kOutcome + "certify: {exact: 100}\n");
  auto roles = roles_of(plan);
  EXPECT_EQ(roles[RunRole::exact_reference], 1);
  EXPECT_EQ(roles[RunRole::exact_cell], 1);
  for (const PlannedRun& run : plan.runs) {
    const bool exact = run.role == RunRole::exact_reference || run.role == RunRole::exact_cell;
    EXPECT_EQ(run.config.arithmetic == Arithmetic::exact, exact) << run.id;
    if (!exact) continue;
    EXPECT_EQ(run.config.stop_after, 100);
    EXPECT_EQ(run.config.steps, 300) << "schedules still extend to the whole run";
    EXPECT_EQ(run.config.seed, 4);
    EXPECT_EQ(run.config.backend, Backend::emulated);
    EXPECT_THAT(run.id, HasSubstr("-exact-"));
  }
}

TEST(ExactPair, IsNotThereUnlessItIsAskedFor) {
  auto roles = roles_of(plan_of(kOutcome));
  EXPECT_EQ(roles[RunRole::exact_reference] + roles[RunRole::exact_cell], 0);
}

TEST(ExactPair, OfBatchStatisticsIsRefusedByName) {
  const std::string text =
      "# Is it so?\nname: tiny\ntrainer: classify\nnorm: sync_batch\ndata: {source: synthetic}\n"
      "reference: {layout: 1x24}\naxes: {layout: [8x3]}\ncertify: {exact: 10}\n";
  EXPECT_THAT(problems_of(text), Contains(HasSubstr("m.yaml:8:11: cell '8x3'")));
  EXPECT_THAT(problems_of(text), Contains(HasSubstr("norm sync_batch takes statistics over rows")));
}

TEST(ExactArithmetic, NamesCellsAndTakesNoForcedStep) {
  const std::string text = kHead + "arithmetic: native\nforced_steps: [0, 1]\naxes: {layout: [8x3], arithmetic: [native, exact]}\n";
  const Matrix matrix = parse(text);
  EXPECT_THAT(names_of(matrix), Contains("8x3 arithmetic=exact"));
  for (const PlannedRun& run : make_plan(matrix, "", {}).runs) {
    if (run.role != RunRole::forced_cell) continue;
    EXPECT_EQ(run.config.arithmetic, Arithmetic::native) << run.id;
  }
}

TEST(ExactArithmetic, IsRefusedWhereBatchStatisticsOrAPlainReferenceNeedAllRowsAtOnce) {
  const std::string norm =
      "# Is it so?\nname: tiny\ntrainer: classify\ndata: {source: synthetic}\nnorm: batch\narithmetic: exact\n"
      "reference: {layout: 1x24}\naxes: {layout: [8x3]}\n";
  EXPECT_THAT(problems_of(norm), Contains(HasSubstr("m.yaml:5:1: cell '8x3'")));
  EXPECT_THAT(problems_of(norm), Contains(HasSubstr("norm batch takes statistics over rows")));
  const std::string certificate =
      "# Is it so?\nname: tiny\nquestion: certificate\narithmetic: exact\naxes: {layout: [8x3]}\n";
  EXPECT_THAT(problems_of(certificate), Contains(HasSubstr("arithmetic: exact is not possible")));
}

const std::string kDetection =
    "# Is it found?\nname: d\nquestion: detection\narithmetic: exact\nmodel: {width: 8, hidden: 16}\n"
    "data: {source: synthetic, series: 7, holdout_series: 1, series_steps: 86, min_context: 10}\n";

TEST(ExactDetection, PlantsEveryBugThatCanActAndRefusesThoseThatCannot) {
  const Matrix matrix = parse(kDetection + "detection: {mutants: all, seeds: [0], pairs: 0, clean: 0}\n");
  int beyond = 0;
  for (const MutantEntry& entry : mutant_entries()) {
    const bool of_another = !entry.trainer.empty() && entry.trainer != "energy";
    const auto plants = [&](const Cell& cell) { return cell.config.mutant.name == entry.name; };
    const bool planted = std::ranges::any_of(matrix.cells, plants);
    beyond += entry.beyond_exact.empty() ? 0 : 1;
    if (of_another) continue;
    EXPECT_EQ(planted, entry.beyond_exact.empty()) << entry.name;
  }
  EXPECT_GT(beyond, 0);
  EXPECT_THAT(problems_of(kDetection + "detection: {mutants: [own_slice], seeds: [0]}\n"),
              Contains(HasSubstr("mutant own_slice does not work with arithmetic: exact: its loss is not a sum over rows")));
}

TEST(ExactDetection, DrawsBitsBelowRoundingToo) {
  const Matrix matrix = parse(kDetection + "detection: {mutants: [flip_bit], seeds: 0..40, pairs: 0, clean: 0}\n");
  const auto low = [](const Cell& cell) { return cell.config.mutant.bit < 20; };
  EXPECT_TRUE(std::ranges::any_of(matrix.cells, low));
  for (const PlannedRun& run : make_plan(matrix, "", {}).runs) EXPECT_FALSE(run.config.forced.on()) << run.id;
}

}  // namespace
}  // namespace lockstep
