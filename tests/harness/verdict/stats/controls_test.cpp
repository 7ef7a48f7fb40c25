// Each question needs a power control of its own: another column's shows nothing of it.

#include "harness/verdict/stats/controls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/questions/sentences.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/stats/decision.h"
#include "harness/verdict/stats/estimates.h"
#include "harness/verdict/stats/power.h"
#include "tests/support/normal_draws.h"
#include "tests/support/proportion.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::certain_bounds;
using support::NormalDraws;
using support::Proportion;
using support::SyntheticMatrix;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// The usual matrix, whose second question is compared with `reference` with `rows` of its own.
Results with_second_question(const std::string& reference, std::vector<std::pair<std::string, std::string>> rows) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"8x3 layer", 0.001, 0.008});
  Results results = matrix.judge();
  results.cells.back().reference = reference;
  ReferenceResult second = results.references.front();
  second.name = reference;
  for (auto& [key, value] : second.config) {
    for (const auto& [changed, to] : rows) {
      if (key == changed) value = to;
    }
  }
  results.references.push_back(second);
  note_controls(results);
  results.summary = summarize_results(results);
  return results;
}

TEST(Controls, AnotherObjectiveIsNotCoveredByAControlOfTheFirst) {
  const Results results = with_second_question("1x24 layer", {{"negatives", "layer"}});
  EXPECT_EQ(results.cells.back().verdict, VerdictKind::equivalent);
  EXPECT_THAT(results.summary.uncontrolled, ElementsAre("1x24 layer"));
  EXPECT_TRUE(results.summary.can_tell) << "no control was missed";
  const std::string said =
      "no power control and no other cell was found to differ from 1x24 layer, so nothing shows that a difference would "
      "be noticed in this comparison.";
  EXPECT_THAT(results.cells.back().outcome->sentence, HasSubstr("; " + said));
  EXPECT_THAT(results.summary.sentence,
              AllOf(HasSubstr("8x3 layer came out equivalent to 1x24 layer: 24-way accuracy differs by +0.001 "
                              "(90 % interval -0.004 to +0.006), "
                              "margin 0.03, 10 paired seeds; but " +
                              said),
                    Not(HasSubstr("8x3 layer trains the same")), HasSubstr("8x3 global trains the same as 1x24 "
                                                                           "global")));
  // What was read again says the same.
  const Results again = results_from_json(results_to_json(results), "results.json");
  EXPECT_EQ(again.summary.uncontrolled, results.summary.uncontrolled);
}

TEST(Controls, AnotherLossOrOptimizerIsAnotherQuestion) {
  for (const char* key : {"loss", "optimizer", "model.width", "data.source", "lr"}) {
    const Results results = with_second_question("1x24 other", {{key, "other"}});
    EXPECT_THAT(results.summary.uncontrolled, ElementsAre("1x24 other")) << key;
  }
}

TEST(Controls, WhatDecidesNothingOfLearningIsTheSameQuestion) {
  const Results results = with_second_question(
      "1x24 traced",
      {{"trace", "full"}, {"seed", "7"}, {"bucket_cap_bytes", "4096"}, {"eval_every", "7"}, {"timeout_s", "9"}});
  EXPECT_THAT(results.summary.uncontrolled, IsEmpty());
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("came out equivalent to")));
}

TEST(Controls, OfItsOwnQuestionOneControlIsEnough) {
  Results results = with_second_question("1x24 layer", {{"negatives", "layer"}});
  CellResult control = results.cells[2];
  control.scenario = "8x3 layer lr_scale=0.125";
  control.reference = "1x24 layer";
  results.cells.push_back(control);
  EXPECT_THAT(uncontrolled_references(results), IsEmpty());
  EXPECT_THAT(summarize_results(results).sentence, HasSubstr("8x3 global and 8x3 layer train the same as 1x24 "
                                                             "global and 1x24 layer"));
  // A control that was missed shows nothing either.
  results.cells.back().outcome->verdict = results.cells.back().verdict = VerdictKind::equivalent;
  EXPECT_THAT(uncontrolled_references(results), ElementsAre("1x24 layer"));
}

TEST(Controls, AMatrixWithoutControlsSaysSoOfAllCells) {
  SyntheticMatrix matrix;
  matrix.add_cell({"3x8", 0.001, 0.008});
  matrix.add_cell({"8x3", -0.001, 0.008});
  const std::string sentence = matrix.judge().summary.sentence;
  EXPECT_THAT(sentence, HasSubstr("3x8 and 8x3 came out equivalent to 1x24 global: "));
  EXPECT_THAT(sentence, HasSubstr("so nothing shows that a difference would be noticed in these comparisons."));
}

TEST(Controls, AnotherCellThatCameOutDivergentShowsAsMuch) {
  Results results = with_second_question("1x24 layer", {{"negatives", "layer"}});
  CellResult divergent = results.cells[1];
  divergent.scenario = "24x1 layer";
  divergent.reference = "1x24 layer";
  results.cells.push_back(divergent);
  EXPECT_THAT(uncontrolled_references(results), IsEmpty());
}

TEST(Controls, ADifferenceThatWasSeenNeedsNoControl) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 local", -0.094, 0.02});
  const Results results = matrix.judge();
  EXPECT_THAT(results.summary.uncontrolled, IsEmpty());
  EXPECT_THAT(results.summary.sentence, HasSubstr("8x3 local does not train the same as 1x24 global"));
}

TEST(Controls, SaysHowSmallADifferenceCouldBeSeenAndHowFarTheControlLies) {
  const Results results = SyntheticMatrix::usual().judge();
  const double seen = results.cells[1].outcome->detectable;
  EXPECT_EQ(seen, results.cells[0].outcome->detectable) << "the cell that scatters more counts for all";
  EXPECT_NEAR(seen, 0.056, 0.0005);
  EXPECT_THAT(results.summary.sentences.at(2),
              AllOf(HasSubstr("Against 1x24 global a true difference in 24-way accuracy of 0.0"),
                    HasSubstr(" or more is found with probability 0.8 or more (10 paired seeds with the spread of 8x3 "
                              "local, at its upper bound); the closest cell that was found to differ, 8x3 local, differs by 3 margins: "
                              "it does not show that a small difference would be noticed.")));
  // With the control alone.
  SyntheticMatrix far;
  far.add_cell({"8x3 global", 0.001, 0.008});
  far.add_cell({"8x3 global lr_scale=0.125", -0.347, 0.018, 0.2, true});
  EXPECT_THAT(far.judge().summary.sentences.at(2),
              HasSubstr("; its power control 8x3 global lr_scale=0.125 differs by 12 margins: it does not show that a "
                        "small difference would be noticed."));
}

TEST(Controls, SaysWhereTheMarginIsMuchOfWhatIsLearnt) {
  Results results = SyntheticMatrix::usual().judge();
  const auto sight = [&] { return sight_in_words(controlled_questions(results).front()); };
  EXPECT_THAT(sight(), Not(HasSubstr("over chance")));
  for (CellResult& cell : results.cells) cell.outcome->primary.reference_mean = 1.0 / 24 + 0.15;
  EXPECT_THAT(sight(), HasSubstr("; the margin is 20 % of the improvement of 1x24 global over chance"));
  for (CellResult& cell : results.cells) cell.outcome->primary.reference_mean = 1.0 / 24;
  EXPECT_THAT(sight(), HasSubstr("; the margin is at least the whole improvement of 1x24 global over chance"));
}

TEST(Controls, ACopyOfTheReferenceDoesNotSayHowADifferenceScatters) {
  // The margin is 0.03. A cell that is as good as a copy would be said to see 0.030: what lies at the margin comes out divergent
  // with a probability of 0.025 alone.
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", 1e-9, 1e-9});
  matrix.add_cell({"8x3 global lr_scale=0.125", -0.347, 0.018, 0.2, true});
  const Results results = matrix.judge();
  EXPECT_THAT(results.summary.sentence, HasSubstr("10 paired seeds with the spread of 8x3 global lr_scale=0.125, at its upper bound"));
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("of 0.030 or more")));
  EXPECT_GT(results.cells[0].outcome->detectable, 0.045);
  SyntheticMatrix copies;
  copies.add_cell({"8x3 global", 0, 0});
  EXPECT_THAT(copies.judge().summary.sentence, Not(HasSubstr("is found with probability")));
  EXPECT_EQ(copies.judge().cells[0].outcome->detectable, 0);
}

/// A cell whose differences were drawn.
CellResult drawn_cell(const std::string& name, bool control, const std::vector<double>& differences, const Primary& primary) {
  const PairedSummary summary = summarize_differences(differences);
  CellResult cell;
  cell.scenario = name;
  cell.reference = "1x24";
  cell.power_control = control;
  cell.outcome.emplace();
  cell.outcome->verdict = decide(differences, primary);
  cell.outcome->metric = primary.metric;
  cell.outcome->margin = primary.margin;
  cell.outcome->n = summary.n;
  cell.outcome->primary.mean = summary.mean;
  cell.outcome->sd_upper = sd_upper_bound(summary);
  return cell;
}

TEST(Controls, WhatIsSaidToBeSeenIsSeen) {
  // Matrices of a copy and a control whose runs scatter with 0.02; then a cell that differs by as much as was told, or by the margin.
  NormalDraws draws(30);
  const Primary primary{"accuracy_24", 0.03, 0.05};
  const auto sample = [&draws](double mean, double sd, std::size_t n) {
    std::vector<double> values(n);
    for (double& value : values) value = mean + sd * draws.normal();
    return values;
  };
  for (const std::size_t n : {3, 5, 10}) {
    Proportion seen, at_margin, of_copy_alone;
    for (int trial = 0; trial < 40; ++trial) {
      Results results;
      results.cells = {drawn_cell("copy", false, sample(0, 1e-6, n), primary),
                       drawn_cell("control", true, sample(0.4, 0.02, n), primary)};
      const double by_copy = detectable_difference({static_cast<int>(n), results.cells[0].outcome->sd_upper, 0.03, 0.05, 0});
      note_controls(results);
      const auto is_divergent = [&](double difference) {
        return decide(sample(difference, 0.02, n), primary) == VerdictKind::divergent;
      };
      for (int cell = 0; cell < 100; ++cell) {
        for (Proportion* share : {&seen, &at_margin, &of_copy_alone}) ++share->trials;
        seen.hits += is_divergent(results.cells[0].outcome->detectable);
        at_margin.hits += is_divergent(primary.margin);
        of_copy_alone.hits += is_divergent(by_copy);
      }
    }
    EXPECT_GE(certain_bounds(seen).high, kWantedPower) << n;
    EXPECT_LE(certain_bounds(at_margin).low, 0.025) << n;
    EXPECT_GE(certain_bounds(at_margin).high, 0.025) << n;
    EXPECT_LT(certain_bounds(of_copy_alone).high, 0.05) << n << ": by the copy's spread, nothing of that size is seen";
    RecordProperty("seen_of_" + std::to_string(n), std::to_string(seen.hits / 4'000.0));
  }
}

}  // namespace
}  // namespace lockstep
