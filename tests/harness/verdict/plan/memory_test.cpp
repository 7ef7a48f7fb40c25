#include "harness/verdict/plan/planned_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Plan plan_of_layouts(const std::string& reference, const std::string& cell) {
  const std::string text = "name: m\ntrainer: energy\ndata: {source: synthetic, series: 900}\nsteps: 3\nseeds: 0\nquestion: mechanism\n"
                           "ranks: emulated\nforced_steps: [1]\ncertify_steps: 0\nreference: {layout: " +
                           reference + "}\naxes:\n  layout: [" + cell + "]\n";
  return make_plan(parse_matrix(text, "m.yaml", {}), "", {});
}

double most_of(const Plan& plan) {
  double most = 0;
  for (const PlannedRun& run : plan.runs) most = std::max(most, modelled_memory_bytes(run.config));
  return most;
}

TEST(PlannedMemory, OfManyRowsIsThatOfTheirScoresAndAPart) {
  const double few = most_of(plan_of_layouts("1x24", "8x3")), many = most_of(plan_of_layouts("1x1536", "512x3"));
  EXPECT_GT(few, 1e8);
  EXPECT_LT(few, 3e8);
  EXPECT_GT(many, few);
  EXPECT_LT(many, 8e9) << "not that of all pairs' activations, 22 GB in float64 with their gradients";
}

TEST(PlannedMemory, ThatTheMachineLacksIsRefusedByName) {
  const Plan plan = plan_of_layouts("1x1536", "512x3");
  EXPECT_THAT(lacking_memory(plan, 64e9), IsEmpty());
  EXPECT_THAT(lacking_memory(plan, 0), IsEmpty()) << "a machine of which nothing is known";
  const double most = most_of(plan);
  const std::vector<std::string> lacking = lacking_memory(plan, 0.99 * most);
  ASSERT_EQ(lacking.size(), 1U);
  EXPECT_THAT(lacking.front(), testing::AllOf(HasSubstr("needs about"), HasSubstr("this machine has")));
}

TEST(PlannedMemory, StandsInThePlan) {
  const Plan plan = plan_of_layouts("1x24", "8x3");
  EXPECT_THAT(plan_text(plan, 2), testing::AllOf(HasSubstr("MEMORY"), HasSubstr(" GB")));
  EXPECT_THAT(plan_json(plan, 2), HasSubstr("\"memory_bytes\""));
}

TEST(PlannedMemory, OfTheMachineIsKnown) { EXPECT_GT(machine_memory_bytes(), 1e8); }

}  // namespace
}  // namespace lockstep
