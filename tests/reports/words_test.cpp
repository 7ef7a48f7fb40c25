#include "reports/words.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

TEST(Status, FollowsTheExitCode) {
  Results r = outcome_results();
  for (const auto& [code, word] : {std::pair{0, "As expected"},
                                   {1, "Not as expected"},
                                   {3, "A rank died"},
                                   {4, "A rank hung"},
                                   {5, "Undecided"},
                                   {6, "Nothing selected"},
                                   {7, "Not judged"},
                                   {130, "Interrupted"}}) {
    r.summary.exit_code = code;
    EXPECT_EQ(status_of(r).word, word);
  }
}

TEST(Status, AMissedControlComesBeforeAnyVerdict) {
  Results r = missed_control_results();
  for (const int code : {0, 1, 3, 5}) {
    r.summary.exit_code = code;
    EXPECT_EQ(status_of(r).word, "Cannot tell");
  }
  EXPECT_NE(status_of(r).detail.find("8x3 global lr_scale=0.125 came out equivalent"), std::string::npos);
}

TEST(DisagreesInSign, OnlyWhereBothIntervalsLeaveZeroOut) {
  MetricDifference accuracy{"accuracy_24", 0.5, 0.4, -0.1, 0.01, {-0.12, -0.08, 0.95}, true};
  MetricDifference loss{"loss", 1.0, 0.9, -0.1, 0.01, {-0.12, -0.08, 0.95}, false};
  EXPECT_TRUE(disagrees_in_sign(accuracy, loss));
  loss.interval = {-0.12, 0.01, 0.95};
  EXPECT_FALSE(disagrees_in_sign(accuracy, loss));
  loss.interval = {0.08, 0.12, 0.95};
  loss.mean = 0.1;
  EXPECT_FALSE(disagrees_in_sign(accuracy, loss));
}

TEST(MetricWords, NamesWaysAndLeavesStrangersAlone) {
  EXPECT_EQ(metric_words("accuracy_24"), "24-way accuracy");
  EXPECT_EQ(metric_words("cross_entropy_256_fitted"), "256-way cross-entropy, temperature fitted");
  EXPECT_EQ(metric_words("loss_over_log_n"), "training loss / log N");
  EXPECT_EQ(metric_words("accuracy_x"), "accuracy_x");
  EXPECT_EQ(metric_words("auc_accuracy_24"), "24-way accuracy, area under the curve");
  EXPECT_EQ(metric_words("auc_temperature"), "auc_temperature");
  EXPECT_DOUBLE_EQ(chance_of("accuracy_24"), 1.0 / 24);
  EXPECT_LT(chance_of("accuracy_24_fitted"), 0);
}

TEST(CellAnchors, AreUnique) {
  Results r = outcome_results();
  r.cells[1].scenario = "8X3 GLOBAL";
  const auto anchors = cell_anchors(r);
  EXPECT_EQ(anchors[0], "cell-8x3-global");
  EXPECT_EQ(anchors[1], "cell-8x3-global-2");
}

TEST(CertificationWords, SayHowMuchWasCertified) {
  Results r = outcome_results();
  EXPECT_EQ(certification_words(r), "certified bit for bit on 8 real Gloo ranks: 50 steps of 5 of 6 cells");
  r.cells.erase(r.cells.begin() + 4);
  EXPECT_EQ(certification_words(r), "certified bit for bit on 8 real Gloo ranks: 50 steps of each cell");
  r.cells[0].certification.divergence = Divergence{};
  EXPECT_EQ(certification_words(r), "certified bit for bit on 8 real Gloo ranks: 50 steps of 4 of 5 cells");
  EXPECT_EQ(certification_words(mechanism_results()), "");
}

TEST(CertificationWords, SayWhatWasHeldToABandAndWhy) {
  Results r = outcome_results();
  r.cells.erase(r.cells.begin() + 4);
  for (CellResult& cell : r.cells) cell.certification.backend = "nccl";
  EXPECT_EQ(certification_words(r), "certified bit for bit on 8 real NCCL ranks: 50 steps of each cell");
  r.cells[0].certification.certify = kByBand;
  r.cells[0].certification.band_used = 0.117;
  EXPECT_EQ(certification_words(r), "certified on 8 real NCCL ranks: 50 steps of each cell, 4 bit for bit and 1 within tolerance, at most 12 % of "
                                    "tolerance used; NCCL does not specify its summation order");
  for (CellResult& cell : r.cells) cell.certification.certify = kByBand;
  EXPECT_EQ(certification_words(r), "within tolerance on 8 real NCCL ranks: 50 steps of each cell, at most 12 % of tolerance used; NCCL does not "
                                    "specify its summation order");
  r.cells[0].certification.divergence = Divergence{};
  EXPECT_NE(certification_words(r).find("50 steps of 4 of 5 cells"), std::string::npos);
}

TEST(CertifiedWords, PartsHowFromHowMuch) {
  Results r = outcome_results();
  EXPECT_EQ(certified_of(r).how, "certified bit for bit on 8 real Gloo ranks");
  EXPECT_EQ(certified_of(r).what, "50 steps of 5 of 6 cells");
  for (CellResult& cell : r.cells) cell.certification.steps = 0;
  EXPECT_EQ(certified_of(r).how, "");
  EXPECT_EQ(certified_of(r).what, "none of 6 cells certified on real ranks");
}

TEST(NoteWords, SayWhatMatters) {
  const Results r = outcome_results();
  EXPECT_EQ(note_words(r.cells[0]), "gradients agree (19 % of tolerance)");
  EXPECT_EQ(
      note_words(r.cells[1]),
      "step 0, energies: 2 negatives of 23; cause: local-negatives. Gather the candidates of all ranks.");
  EXPECT_EQ(note_words(r.cells[5]), "found, as required");
  CellResult near = r.cells[0];
  near.verdict = VerdictKind::inconclusive;
  near.outcome->seeds_needed = 6;
  near.outcome->seeds_needed_half = 44;
  EXPECT_EQ(note_words(near).find("the difference may be close to the margin; 80 % chance to decide: 44 seeds if it is half the margin"), 0u) << note_words(near);
  EXPECT_EQ(note_words(missed_control_results().cells[1]).find("a power control must be found to differ"), 0u);
}

TEST(NoteWords, SayWhichSavesOfCheckpointsFailed) {
  Results r = outcome_results();
  r.cells[0].failed_saves = "2 of 8 saves failed, the first: epoch_0_step_8 was not saved; the newest checkpoint is of step 6";
  EXPECT_EQ(note_words(r.cells[0]), "gradients agree (19 % of tolerance); checkpoints: " + r.cells[0].failed_saves);
  r.summary.exit_code = 0;
  EXPECT_NE(status_of(r).detail.find("; but saves of checkpoints failed."), std::string::npos) << status_of(r).detail;
}

TEST(Status, SaysThatNothingWasExpectedWhereNoExpectationIsStated) {
  Results r = outcome_results();
  r.cells.resize(2);
  r.summary.exit_code = 0;
  for (CellResult& cell : r.cells) {
    cell.as_expected = true;
    cell.power_control = false;
    cell.expected.clear();
  }
  EXPECT_EQ(status_of(r).word, "Judged");
  EXPECT_EQ(status_of(r).detail, "The config states no expectation of a cell, and none failed.");
  EXPECT_EQ(unstated_cells(r), 2);
  r.cells[0].expected = {r.cells[0].verdict};
  EXPECT_EQ(status_of(r).word, "As expected");
  EXPECT_EQ(status_of(r).detail,
            "1 cell came out as the config expects; it states no expectation of the other 1.");
  r.cells[1].expected = {r.cells[1].verdict};
  EXPECT_EQ(status_of(r).detail, "All 2 cells came out as the config expects.");
}

TEST(NoteWords, SeedsAreNotCountedForADifferenceThatTheIntervalLeavesOut) {
  CellResult cell = outcome_results().cells[0];
  cell.verdict = VerdictKind::inconclusive;
  Outcome& outcome = *cell.outcome;
  outcome.seeds_needed = 34;
  outcome.seeds_needed_half = 121;
  outcome.primary.interval = {-0.01, 0.05, 0.95};
  EXPECT_EQ(note_words(cell).find("80 % chance to decide: 34 seeds if there is no difference, 121 if it is half the margin"), 0u) << note_words(cell);
  outcome.primary.interval = {0.01, 0.05, 0.95};
  EXPECT_EQ(note_words(cell).find("not 0; 80 % chance to decide: 121 seeds if the difference is half the margin"), 0u) << note_words(cell);
  outcome.primary.interval = {0.02, 0.05, 0.95};
  EXPECT_EQ(note_words(cell).find("not 0: the difference may be larger than the margin"), 0u) << note_words(cell);
}

TEST(NoteWords, AnUnexplainedDifferenceShowsWhatIsKnown) {
  CellResult cell = outcome_results().cells[1];
  cell.mechanism->cause = Cause{"unexplained", 0, "no known cause fits; local gradients: head 8 (the world size) times", "Look."};
  EXPECT_NE(note_words(cell).find("cause: unexplained: no known cause fits; local gradients: head 8"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
