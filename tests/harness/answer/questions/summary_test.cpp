#include "harness/answer/questions/sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/answer/questions/question_judge.h"
#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

using support::SyntheticMatrix;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CellResult cell(VerdictKind verdict, bool as_expected, std::optional<FailureKind> failure = std::nullopt) {
  CellResult c;
  c.scenario = "cell";
  c.verdict = verdict;
  c.as_expected = as_expected;
  if (failure) {
    c.failure.emplace();
    c.failure->kind = *failure;
  }
  return c;
}

int code(const std::vector<CellResult>& cells, bool margin_refused = false) {
  Results results;
  results.cells = cells;
  results.summary.margin_refused = margin_refused;
  return exit_code_of(results);
}

TEST(ExactSentences, SayHowFarCellsAgreeAndWhereTheyPart) {
  Results results;
  results.cells = {cell(VerdictKind::equivalent, true), cell(VerdictKind::divergent, true)};
  EXPECT_TRUE(exact_sentences(results).empty());
  for (CellResult& each : results.cells) {
    each.reference = "1x24";
    each.exact.emplace();
    each.exact->asked = each.exact->steps = 100;
    each.exact->seed = 3;
  }
  results.cells[1].scenario = "8x3 local";
  results.cells[1].exact->steps = 0;
  results.cells[1].exact->divergence = Divergence{};
  results.cells[1].exact->divergence->phase = "energies";
  results.cells[1].exact->divergence->where = "inputs";
  const std::vector<std::string> said = exact_sentences(results);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0], "In exact arithmetic (100 steps of seed 3) cell and 1x24 agree bit for bit, so what differs natively is "
                     "rounding.");
  EXPECT_EQ(said[1], "8x3 local differs from 1x24 in exact arithmetic too (step 0, energies, inputs), so the difference is not rounding.");
}

TEST(Summary, SaysWhichSavesOfCheckpointsFailed) {
  Results results;
  results.cells = {cell(VerdictKind::identical, true), cell(VerdictKind::identical, true)};
  results.cells[1].failed_saves = "1 of 3 saves failed, epoch_0_step_6 was not saved; the newest checkpoint is of step 9";
  EXPECT_THAT(summarize_results(results).sentences, testing::Contains(HasSubstr("Checkpoints of cell: 1 of 3 saves failed, ")));
  results.cells[1].failed_saves.clear();
  EXPECT_THAT(summarize_results(results).sentences, Not(testing::Contains(HasSubstr("Checkpoints of"))));
}

TEST(ExitCode, IsZeroIfAllIsAsExpected) {
  EXPECT_EQ(code({cell(VerdictKind::equivalent, true), cell(VerdictKind::divergent, true)}), 0);
  EXPECT_EQ(code({cell(VerdictKind::failed, true, FailureKind::died)}), 0);
  EXPECT_EQ(code({cell(VerdictKind::inconclusive, true)}), 0);
}

TEST(ExitCode, NamesEachEnd) {
  EXPECT_EQ(code({}), 6);
  EXPECT_EQ(code({cell(VerdictKind::divergent, false)}), 1);
  EXPECT_EQ(code({cell(VerdictKind::inconclusive, false)}), 5);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::died)}), 3);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::threw)}), 3);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::lost)}), 3);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::hung)}), 4);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::unreadable)}), 7);
  EXPECT_EQ(code({cell(VerdictKind::failed, false, FailureKind::nonfinite)}), 1);
  EXPECT_EQ(code({cell(VerdictKind::equivalent, true)}, true), 2);
}

TEST(ExitCode, IsTheFirstOf723415) {
  std::vector<CellResult> cells{cell(VerdictKind::inconclusive, false)};
  EXPECT_EQ(code(cells), 5);
  cells.push_back(cell(VerdictKind::equivalent, false));
  EXPECT_EQ(code(cells), 1);
  cells.push_back(cell(VerdictKind::failed, false, FailureKind::hung));
  EXPECT_EQ(code(cells), 4);
  cells.push_back(cell(VerdictKind::failed, false, FailureKind::died));
  EXPECT_EQ(code(cells), 3);
  EXPECT_EQ(code(cells, true), 2);
  cells.push_back(cell(VerdictKind::failed, false, FailureKind::unreadable));
  EXPECT_EQ(code(cells, true), 7);
}

Results with_margin(double margin, double control_effect, double sd = 0.018) {
  SyntheticMatrix matrix;
  matrix.plan.matrix.primary.margin = margin;
  matrix.add_cell({"8x3 global", 0.001, 0.004});
  matrix.add_cell({"control", control_effect, sd, 0.0, true, {}});
  return matrix.judge();
}

TEST(Margin, StandsUpToHalfOfTheControlsEffect) {
  EXPECT_FALSE(with_margin(0.03, -0.09).summary.margin_refused);
  EXPECT_FALSE(with_margin(0.17, -0.347).summary.margin_refused);
  EXPECT_EQ(with_margin(0.17, -0.347).summary.exit_code, 0);
}

TEST(Margin, IsRefusedBeyondHalfOfTheControlsEffect) {
  const Results results = with_margin(0.18, -0.347);
  EXPECT_TRUE(results.summary.margin_refused);
  EXPECT_EQ(results.summary.exit_code, 2);
  EXPECT_THAT(results.summary.margin_text, HasSubstr("margin of 0.18"));
  EXPECT_THAT(results.summary.margin_text, HasSubstr("control"));
  EXPECT_THAT(results.summary.margin_text, HasSubstr("-0.347"));
  EXPECT_THAT(results.summary.margin_text, HasSubstr("a margin of at most 0.17 "));
  EXPECT_THAT(results.summary.sentence, HasSubstr(results.summary.margin_text));
  EXPECT_EQ(exit_code_of(results), 2);
}

TEST(Margin, IsRefusedAlsoWhereItSwallowsTheControl) {
  const Results results = with_margin(0.5, -0.347);
  EXPECT_FALSE(results.summary.can_tell);
  EXPECT_EQ(results.summary.exit_code, 2);
}

TEST(Margin, TheWeakestControlThatShowsAnEffectCounts) {
  SyntheticMatrix matrix;
  matrix.plan.matrix.primary.margin = 0.05;
  matrix.add_cell({"strong", -0.347, 0.018, 0.0, true, {}});
  EXPECT_FALSE(matrix.judge().summary.margin_refused);
  matrix.add_cell({"weak", -0.09, 0.018, 0.0, true, {}});
  EXPECT_TRUE(matrix.judge().summary.margin_refused);
  EXPECT_THAT(matrix.judge().summary.margin_text, HasSubstr("weak"));
}

TEST(Margin, AControlWithoutEffectIsMissedInsteadOfRefusingTheMargin) {
  const Results results = with_margin(0.03, 0.0);
  EXPECT_FALSE(results.summary.margin_refused);
  EXPECT_FALSE(results.summary.can_tell);
  EXPECT_EQ(results.summary.exit_code, 1);
}

TEST(SummarySentence, SaysWhichTrainTheSameWhichNotAndByHowMuch) {
  const std::string sentence = SyntheticMatrix::usual().judge().summary.sentence;
  EXPECT_EQ(
      sentence,
      "8x3 global trains the same as 1x24 global: 24-way accuracy differs by +0.001 (90 % interval -0.004 to "
      "+0.006), margin 0.03, 10 paired seeds; 8x3 local does not: 24-way accuracy 0.094 lower (95 % interval "
      "0.080 to 0.108, 10 paired seeds), although its training loss / log N and its raw cross-entropy are "
      "lower. The power control 8x3 global lr_scale=0.125 was found to differ, as required: 24-way accuracy "
      "0.347 lower (95 % interval 0.334 to 0.360, 10 paired seeds). "
      "Against 1x24 global a true difference in 24-way accuracy of 0.056 or more is found with "
      "probability 0.8 or more (10 paired seeds with the spread of 8x3 local, at its upper bound); the closest cell that was found to "
      "differ, 8x3 local, differs by 3 margins: it does not show that a small difference would be noticed. A failure in fewer than "
      "26 % of seeds may simply not be among these 10 (probability above 5 %).");
}

TEST(SummarySentence, IsItsSentencesOneAfterTheOther) {
  const Summary summary = SyntheticMatrix::usual().judge().summary;
  ASSERT_EQ(summary.sentences.size(), 4u);
  EXPECT_TRUE(summary.sentences[1].starts_with("The power control 8x3 global")) << summary.sentences[1];
  EXPECT_EQ(summary.sentence, summary.sentences[0] + " " + summary.sentences[1] + " " + summary.sentences[2] + " " +
                                  summary.sentences[3]);
}

TEST(SummarySentence, SaysWhatWasFoundFirstOfACellThatDoesNotTrainTheSame) {
  Results results = SyntheticMatrix::usual().judge();
  Mechanism& mechanism = results.cells[1].mechanism.emplace();
  mechanism.verdict = VerdictKind::divergent;
  mechanism.first_divergence.emplace().step = 2;
  const auto sentence = [&results] { return summarize_results(results).sentence; };
  mechanism.cause = Cause{"local-negatives", 0.98, "a row has 2 negatives instead of 23", "Gather them."};
  EXPECT_THAT(sentence(), HasSubstr("0.080 to 0.108, 10 paired seeds), although its training loss / log N"));
  EXPECT_THAT(sentence(), HasSubstr("; the first difference, at step 2: a row has 2 negatives instead of 23."));
  EXPECT_THAT(sentence(), Not(HasSubstr("because"))) << "whether it makes the outcome was not tried";
  mechanism.cause->code = "unexplained";
  EXPECT_THAT(sentence(), Not(HasSubstr("first difference")));
  mechanism.cause.reset();
  EXPECT_THAT(sentence(), Not(HasSubstr("first difference")));
}

TEST(SummarySentence, PromisesOfSeveralCellsNoMoreThanTheirIntervals) {
  SyntheticMatrix matrix;
  matrix.add_cell({"3x8", 0.0, 0.03});
  matrix.add_cell({"8x3", 0.002, 0.008});
  matrix.add_cell({"control", -0.347, 0.018, 0.0, true});
  const Results results = matrix.judge();
  ASSERT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_THAT(results.summary.sentence,
              AllOf(HasSubstr("3x8 and 8x3 train the same as 1x24 global: 24-way accuracy differs by no more than "
                              "-0.017 to +0.017 (each cell's 90 % interval)"),
                    Not(HasSubstr("at most"))));
}

TEST(SummarySentence, DoesNotCallTheSameWhatIsShownToBeWorse) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global", -0.017, 0.008});
  matrix.add_cell({"8x3 local", -0.2, 0.008});
  const Results results = matrix.judge();
  ASSERT_EQ(results.cells[0].verdict, VerdictKind::equivalent);
  EXPECT_THAT(results.summary.sentence,
              AllOf(HasSubstr("8x3 global is within the margin of 1x24 global, but not the same: 24-way accuracy "
                              "0.017 lower (95 % interval 0.011 to 0.023, 10 paired seeds), margin 0.03."),
                    HasSubstr("8x3 local does not train the same as 1x24 global"), Not(HasSubstr("trains the same"))));
}

TEST(SummarySentence, GivesEachOfSeveralDivergentCellsASentence) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"8x3 other", -0.2, 0.02});
  EXPECT_THAT(matrix.judge().summary.sentence,
              AllOf(HasSubstr("10 paired seeds. 8x3 local does not: "), HasSubstr(". 8x3 other does not: ")));
}

TEST(SummarySentence, SaysOfAControlTooWhereItsMetricsDisagree) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 local", -0.094, 0.02, -0.1, true});
  EXPECT_THAT(
      matrix.judge().summary.sentence,
      HasSubstr(
          "0.080 to 0.108, 10 paired seeds), although its training loss / log N and its raw cross-entropy are lower."));
}

TEST(SummarySentence, BeginsWithWhatItCannotTell) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"missed", 0.0, 0.008, 0.0, true, {}});
  EXPECT_TRUE(matrix.judge().summary.sentence.starts_with(
      "This matrix cannot tell: the power control missed came out equivalent (+0.000, 95 % interval "
      "-0.006 to +0.006, 10 paired seeds), but it must be found to differ."))
      << matrix.judge().summary.sentence;
}

TEST(SummarySentence, NamesFailuresAndUndecidedCells) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3 global sqrt", 0.02, 0.036});
  matrix.add_cell({"8x3 dead", 0.0});
  Failure died;
  died.run = "8x3 dead seed 2";
  died.kind = FailureKind::died;
  died.rank = 3;
  died.step = 17;
  died.operation = "all_gather loss.actions";
  died.message = "killed by signal 9";
  matrix.options.failures[died.run] = died;
  const std::string sentence = matrix.judge().summary.sentence;
  EXPECT_THAT(
      sentence,
      HasSubstr("8x3 dead failed: rank 3 died at step 17 in all_gather loss.actions: killed by signal 9."));
  EXPECT_THAT(sentence, HasSubstr("8x3 global sqrt is undecided: accuracy_24 differs by +0.020 (95 % interval -0.006 "
                                  "to +0.046) against a margin of 0.03 (10 paired seeds)"));
  EXPECT_THAT(sentence, HasSubstr("with probability 0.8 if the true difference"));
  EXPECT_THAT(sentence, HasSubstr("to extend this one use seeds: auto"));
}

TEST(SummarySentence, GivesTheMarginsRefusalItsFigures) {
  EXPECT_THAT(with_margin(0.18, -0.347).summary.margin_text,
              HasSubstr("which changes accuracy_24 by -0.347, 95 % interval -0.360 to -0.334, 10 paired seeds."));
}

// Looks end where they may, at levels of their own: no one level is that of all.
TEST(SummarySentence, NamesTheLevelsOfCellsThatHaveLevelsOfTheirOwn) {
  SyntheticMatrix matrix;
  matrix.add_cell({"3x8", 0.0, 0.008});
  matrix.add_cell({"8x3", 0.002, 0.008});
  Results results = matrix.judge();
  results.cells[1].outcome->equivalence.level = 0.973;
  EXPECT_THAT(summarize_results(results).sentence, HasSubstr("(each cell's 90 % to 97.3 % interval)"));
}

// At an equal batch no rule is called for, and none is spoken of.
TEST(SummarySentence, SpeaksOfRulesOfTheRateOnlyWhereTheyVary) {
  SyntheticMatrix matrix;
  matrix.add_cell({"8x3", 0.0, 0.008});
  Results results = matrix.judge();
  Growth& growth = results.growth.emplace_back();
  growth.from_batch = growth.to_batch = 24;
  growth.sentence = "At an equal global batch no rule is called for.";
  growth.rules.emplace_back().rule = "none";
  EXPECT_THAT(summarize_results(results).sentence, Not(HasSubstr("no rule is called for")));
  growth.rules.emplace_back().rule = "linear";
  EXPECT_THAT(summarize_results(results).sentence, HasSubstr("no rule is called for"));
}

TEST(SummarySentence, OfManyCellsIsShort) {
  SyntheticMatrix matrix(3);
  for (int i = 0; i < 50; ++i) matrix.add_cell({"same " + std::to_string(i), 0.0, 0.001});
  for (int i = 0; i < 50; ++i) matrix.add_cell({"worse " + std::to_string(i), -0.2, 0.001});
  matrix.add_cell({"control", -0.347, 0.001, 0.0, true});
  const std::string sentence = matrix.judge().summary.sentence;
  EXPECT_LT(sentence.size(), 1600u);
  EXPECT_THAT(sentence, HasSubstr("same 0, same 1, same 2 and 47 more train the same as 1x24 global"));
  EXPECT_THAT(sentence, HasSubstr("47 more do not train the same."));
}

TEST(SummarySentence, OfAMechanismQuestion) {
  SyntheticMatrix matrix(1);
  matrix.plan.matrix.question = "mechanism";
  matrix.add_cell({"3x8"});
  matrix.add_cell({"8x3"});
  matrix.add_cell({"8x3 grad x 8"});
  matrix.mechanisms["3x8 seed 0"].verdict = VerdictKind::identical;
  Mechanism& planted = matrix.mechanisms["8x3 grad x 8 seed 0"];
  planted.verdict = VerdictKind::divergent;
  planted.sentence = "step 0, reduced gradients: ratio 8.00.";
  EXPECT_EQ(matrix.judge().summary.sentence,
            "3x8 computes the same as 1x24 global over 100 steps of seed 0: every compared bit is equal. 8x3 computes the same as "
            "1x24 global within the "
            "rounding tolerance (19 % of it used). 8x3 grad x 8 does not compute the same as 1x24 global: "
            "step 0, reduced "
            "gradients: ratio 8.00.");
}

TEST(Summary, Counts) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.add_cell({"wide", 0.0, 0.3});
  matrix.add_cell({"gone", 0.0});
  matrix.results.erase(matrix.path_of("gone seed 0", 0));
  matrix.plan.runs[0].reused = true;
  const Summary s = matrix.judge().summary;
  EXPECT_EQ(s.cells, 5);
  EXPECT_EQ(s.as_expected, 4);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.undecided, 1);
  EXPECT_EQ(s.power_controls, 1);
  EXPECT_EQ(s.power_controls_caught, 1);
  EXPECT_EQ(s.runs, 10 + 5 * 11);
  EXPECT_EQ(s.runs_reused, 1);
}

TEST(SummarySentence, OfAMechanismSaysOverHowManyStepsOfWhichSeed) {
  SyntheticMatrix matrix(1);
  matrix.plan.matrix.question = "mechanism";
  matrix.add_cell({"3x8"});
  matrix.add_cell({"8x3"});
  matrix.mechanisms["3x8 seed 0"].verdict = VerdictKind::identical;
  matrix.mechanisms["3x8 seed 0"].compared_steps = 40;
  matrix.mechanisms["8x3 seed 0"].verdict = VerdictKind::within_envelope;
  matrix.mechanisms["8x3 seed 0"].forced.resize(2);
  const std::string said = matrix.judge().summary.sentence;
  EXPECT_THAT(said, HasSubstr("3x8 computes the same as 1x24 global over 40 steps of seed 0: every compared bit is equal."));
  EXPECT_THAT(said, HasSubstr("8x3 computes the same as 1x24 global at 2 forced steps of seed 0 within"));
}

TEST(SummarySentence, OfTwoArithmeticsBeginsWithHowFarRoundingCarried) {
  Results results = SyntheticMatrix::usual().judge();
  EXPECT_THAT(results.summary.sentence, Not(HasSubstr("rounding alone")));
  CurveBand& parameters = results.cells[0].drift.emplace_back();
  parameters.metric = "parameters";
  parameters.steps = {1, 300};
  parameters.median = parameters.low = parameters.high = {1e-8, 8e-6};
  EXPECT_THAT(summarize_results(results).sentences.front(),
              HasSubstr("against 1x24 global, 10 paired seeds: Differences by rounding alone up to step 300: parameters at most "
                        "8.0e-06 of their norm."));
}

}  // namespace
}  // namespace lockstep
