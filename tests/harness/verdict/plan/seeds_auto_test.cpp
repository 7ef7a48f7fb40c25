// `seeds: auto`, as a config asks for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/verdict/plan/interim_analyses.h"
#include "harness/verdict/plan/plan.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kAuto =
    "name: x\nsteps: 100\nquestion: outcome\nseeds: auto\nreference: {layout: 1x24}\n"
    "axes: {layout: [8x3], lr_scale: [1, 0.125]}\npower_controls: [{lr_scale: 0.125}]\n";

TEST(SeedsAuto, BeginsWithTheFirstLook) {
  const Matrix matrix = parse(kAuto + "seeds_auto: {first: 4, step: 3, most: 12}\n");
  EXPECT_TRUE(matrix.seeds_auto.on);
  EXPECT_THAT(matrix.seeds, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(analysis_sizes(matrix.seeds_auto), ElementsAre(4, 7, 10, 12));
}

TEST(SeedsAuto, IsAnOutcomesUnlessSaidOtherwise) {
  EXPECT_EQ(
      parse("name: x\nseeds: auto\nreference: {layout: 1x24}\naxes: {layout: [8x3], lr_scale: [1, 0.125]}\n"
            "power_controls: [{lr_scale: 0.125}]\n")
          .question,
      "outcome");
}

TEST(SeedsAuto, GivesWayToSeedsOfTheCommandLine) {
  Overrides overrides;
  overrides.seeds = "3..5";
  const Matrix matrix = parse(kAuto, overrides);
  EXPECT_FALSE(matrix.seeds_auto.on);
  EXPECT_THAT(matrix.seeds, ElementsAre(3, 4, 5));
}

TEST(SeedsAuto, RefusesLooksThatCannotBe) {
  EXPECT_THAT(problems_of(kAuto + "seeds_auto: {first: 50, most: 40}\n"),
              Contains(HasSubstr("m.yaml:8:14: the first interim analysis has 50 seeds, more than the last with 40")));
  EXPECT_THAT(problems_of(kAuto + "seeds_auto: {step: 1, most: 500}\n"),
              Contains(HasSubstr("more than 100 interim analyses")));
}

TEST(SeedsAuto, RefusesQuestionsWithoutAnOutcome) {
  for (const char* question : {"mechanism", "certificate", "detection"}) {
    const std::string text = std::string("name: x\nseeds: auto\nquestion: ") + question +
                             "\nreference: {layout: 1x24}\naxes: {layout: [8x3]}\n";
    EXPECT_THAT(problems_of(text), Contains(HasSubstr("m.yaml:2:"))) << question;
  }
}

TEST(SeedsAuto, AReferenceRunsWhatItsNeediestCellRuns) {
  Matrix matrix = parse(kAuto + "seeds_auto: {first: 2, step: 2, most: 6}\n");
  ASSERT_EQ(matrix.cells.size(), 2u);
  set_analysis(matrix, {2, 6});
  EXPECT_THAT(matrix.seeds, ElementsAre(0, 1, 2, 3, 4, 5));
  const Plan plan = make_plan(matrix, "", {});
  std::map<std::string, std::set<int64_t>> seeds;
  for (const PlannedRun& run : plan.runs) {
    if (run.role == RunRole::cell || run.role == RunRole::reference) seeds[run.cell].insert(run.config.seed);
  }
  EXPECT_EQ(seeds[matrix.cells[0].name].size(), 2u);
  EXPECT_EQ(seeds[matrix.cells[1].name].size(), 6u);
  EXPECT_EQ(seeds[matrix.cells[0].reference_name].size(), 6u);
}

TEST(SeedsAuto, EarlierLooksRunsAreThoseOfLaterOnes) {
  Matrix matrix = parse(kAuto);
  const Plan first = make_plan(matrix, "", {});
  set_analysis(matrix, {10, 10});
  const Plan second = make_plan(matrix, "", {});
  std::set<std::string> hashes;
  for (const PlannedRun& run : second.runs) hashes.insert(run.hash);
  for (const PlannedRun& run : first.runs) EXPECT_TRUE(hashes.contains(run.hash)) << run.id;
}

TEST(SeedsAuto, ThePlanTellsTheFirstLookAndTheMost) {
  const std::string text = plan_text(make_plan(parse(kAuto), "", {}), 2);
  EXPECT_THAT(text, HasSubstr("paired, 5 to 40 seeds, 5 at a time, until decided"));
  EXPECT_THAT(text,
              HasSubstr("first interim analysis: 5 seeds; with all 40, if no cell is decided before: 105 more runs"));
  EXPECT_THAT(plan_json(make_plan(parse(kAuto), "", {}), 2), HasSubstr("\"seeds_auto\""));
}

}  // namespace
}  // namespace lockstep
