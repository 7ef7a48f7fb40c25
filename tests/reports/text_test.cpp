#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

#include "harness/base/numbers.h"
#include "reports/format.h"
#include "reports/plots/chart.h"
#include "reports/html/parts.h"
#include "reports/text.h"
#include "reports/words.h"
#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

TEST(CleanText, KeepsWhatIsText) { EXPECT_EQ(clean_text("a é 名 👍\n\tb"), "a é 名 👍\n\tb"); }

TEST(CleanText, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(clean_text("a\xff"
                       "b"),
            "a\uFFFDb");
  EXPECT_EQ(clean_text("\xc0\xaf"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(clean_text("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(clean_text("\xe5\x90"), "\uFFFD\uFFFD");                      // cut
  EXPECT_EQ(clean_text("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
}

TEST(CleanText, ShowsControlCharactersAsPictures) {
  EXPECT_EQ(clean_text(std::string_view("a\0b\x07\x7f", 5)), "a␀b␇␡");
  EXPECT_EQ(clean_text("\xc2\x85"), "\uFFFD");
  EXPECT_EQ(clean_text("\xef\xbf\xbf"), "\uFFFD");
}

TEST(CleanText, DropsTerminalSequencesAndCarriageReturnsBeforeLineFeeds) {
  EXPECT_EQ(clean_text("\x1b[1;31mred\x1b[0m\x1b]0;title\x07!\r\n"), "red!\n");
  EXPECT_EQ(clean_text("\x1b"), "␛");
  EXPECT_EQ(clean_text("\x1b[31"), "␛[31");
  EXPECT_EQ(clean_text("a\rb"), "a␍b");
}

TEST(CleanText, NamesTheFirstCharacterThatItWouldReplace) {
  EXPECT_EQ(unclean_character("plain ± 中 \n\t"), "");
  EXPECT_EQ(unclean_character("a\x1b[0m"), "the control character U+001B");
  EXPECT_EQ(unclean_character("a\xc2\x85"), "the control character U+0085");
  EXPECT_EQ(unclean_character("a\u202Eb"), "the direction mark U+202E");
  EXPECT_EQ(unclean_character("a\u2028b"), "the character U+2028");
  EXPECT_EQ(unclean_character("a\xff"), "a byte that is not UTF-8");
}

TEST(CleanJson, ReadsBackTheSameAndHoldsNothingForATerminal) {
  const std::string text = "\x7f \u009b \u202E \u2028 \U0001FFFE é 中 \n";
  const std::string json = nlohmann::json(text).dump(), clean = clean_json(json);
  EXPECT_EQ(clean_text(clean), clean);
  EXPECT_EQ(nlohmann::json::parse(clean), text);
  EXPECT_NE(clean.find("é 中"), std::string::npos) << "what can be read stays";
}

TEST(CleanText, TakesAwayMarksThatReorder) { EXPECT_EQ(clean_text("a\u202Eb\u2066c"), "a\uFFFDb\uFFFDc"); }

TEST(EscapeMarkup, LeavesNothingThatCouldBeMarkup) {
  EXPECT_EQ(escape_markup("<a href=\"x\" o='y'>&amp;"),
            "&lt;a href=&quot;x&quot; o=&#39;y&#39;&gt;&amp;amp;");
}

TEST(EscapeMarkdown, LeavesNothingThatCouldBeMarkdown) {
  EXPECT_EQ(escape_markdown("a|b *c* _d_ `e` [f] <g> #h\n@i"),
            "a\\|b \\*c\\* \\_d\\_ \\`e\\` \\[f\\] &lt;g&gt; \\#h &#64;i");
}

TEST(DisplayWidth, CountsWideAndCombiningCharacters) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("± ≠ é"), 5);
  EXPECT_EQ(display_width("e\xcc\x81"), 1);
  EXPECT_EQ(display_width("名前"), 4);
  EXPECT_EQ(display_width("👍"), 2);
}

TEST(Shorten, CutsAtColumnsAndNeverInsideACharacter) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefg", 6), "abcde…");
  EXPECT_EQ(shorten("名前名前", 6), "名前…");
  EXPECT_EQ(shorten("ab cdef", 4), "ab…");
  EXPECT_EQ(shorten("abc", 0), "");
}

TEST(Slug, IsStableAndNeverEmpty) {
  EXPECT_EQ(slug("8x3 global lr_scale=0.125"), "8x3-global-lr_scale-0.125");
  EXPECT_EQ(slug("<script>"), "script");
  EXPECT_EQ(slug("名前"), "cell");
  EXPECT_LE(slug(std::string(1000, 'a')).size(), 60u);
}

std::string aligned_columns(const std::vector<std::vector<std::string>>& rows, std::string_view margin, int width) {
  std::vector<Column> heads;
  for (const std::string& head : rows.front()) heads.push_back(heads.empty() ? Column(head) : numbers(head));
  std::string out;
  for (const TableLine& line : table_lines(heads, {rows.begin() + 1, rows.end()}, margin, width))
    out += line.text + "\n";
  return out;
}

const std::vector<std::vector<std::string>> kRows = {{"case", "every bit the same", "refused"},
                                                     {"a rank ends while it writes", "12", "·"},
                                                     {"a rank ends while it reads", "3", "450"}};

TEST(TextTable, BreaksHeadsBeforeItCutsAnything) {
  EXPECT_EQ(aligned_columns(kRows, " ", 58),
            " case                         every bit the same  refused\n"
            " a rank ends while it writes                  12        ·\n"
            " a rank ends while it reads                    3      450\n");
  EXPECT_EQ(aligned_columns(kRows, " ", 46),
            " case                         every  refused\n"
            "                                bit\n"
            "                                the\n"
            "                               same\n"
            " a rank ends while it writes     12        ·\n"
            " a rank ends while it reads       3      450\n");
}

TEST(TextTable, SetsWhatFindsNoRoomBelow) {
  EXPECT_EQ(aligned_columns(kRows, " ", 24),
            " case            every\n"
            "                   bit\n"
            "                   the\n"
            "                  same\n"
            " a rank ends        12\n"
            "   while it\n"
            "   writes\n"
            " a rank ends         3\n"
            "   while it\n"
            "   reads\n"
            " case            refused\n"
            " a rank ends           ·\n"
            "   while it\n"
            "   writes\n"
            " a rank ends         450\n"
            "   while it\n"
            "   reads\n");
}

TEST(TextTable, HasNoLineOfEmptyHeads) {
  EXPECT_EQ(aligned_columns({{"", ""}, {"a", "10"}, {"b", "2"}}, " ", 80), " a  10\n b   2\n");
}

TEST(TextTable, StaysWithinAnyWidthAndKeepsEveryColumn) {
  std::vector<std::vector<std::string>> rows(31, std::vector<std::string>(12, "123456"));
  for (std::size_t i = 0; i < 12; ++i) rows[0][i] = "column " + std::to_string(i);
  for (int width = kNarrowestWidth; width < 120; ++width) {
    const std::string text = aligned_columns(rows, "  ", width);
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(display_width(text.substr(begin, end - begin)), width);
    EXPECT_NE(text.find("11"), std::string::npos) << width;
    EXPECT_EQ(text.find("…"), std::string::npos) << width;
  }
}

TEST(TextTable, TakesEightyColumnsWhereNobodySaysHowManyThereAre) {
  EXPECT_EQ(table_width(0), 80);
  EXPECT_EQ(table_width(132), 132);
  EXPECT_EQ(table_width(10), kNarrowestWidth);
}

using testing::HasSubstr;
using testing::Not;

TEST(TimingText, HasALineForALayoutWhoseRunsAllFailedAndSaysWhichIsCrowded) {
  Timing timing = *convergence_results().timing;
  TimingRow& lost = timing.rows[1];
  lost.runs = 0;
  for (double* each : {&lost.step_seconds, &lost.interval.low, &lost.interval.high, &lost.rows_per_second, &lost.speed_up, &lost.bytes}) *each = NAN;
  const auto text_of_timing = [&timing] { return text_of(costs_section(timing), false, 160); };
  EXPECT_THAT(text_of_timing(), testing::AllOf(HasSubstr("8x3 (crowded)"), testing::ContainsRegex("2x12 +0 +—")));
  for (TimingRow& row : timing.rows) row.crowded = false;
  EXPECT_THAT(text_of_timing(), Not(HasSubstr("crowded")));
  EXPECT_THAT(markdown_summary(outcome_results()), Not(HasSubstr("### What does it cost?")));
}

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
  for (CellResult& cell : r.cells) cell.certification.steps = 0;
  EXPECT_EQ(certification_words(r), "none of 5 cells certified on real ranks");
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

/// What the row of a cell says behind its name and figures: verdict, cause, fix.
std::string row_words(const CellResult& cell) {
  Table table{.columns = answer_columns(), .rows = {DataRow()}};
  add_answer(table.rows.back(), cell, cell.verdict);
  return markdown_of(tabled(table));
}

TEST(AnswerRow, SaysWhatMatters) {
  const Results r = outcome_results();
  EXPECT_THAT(row_words(r.cells[0]), testing::AllOf(HasSubstr("= equivalent"), testing::Not(HasSubstr("cause"))));
  EXPECT_THAT(row_words(r.cells[1]), HasSubstr("| ≠ divergent | local-negatives (from step 0) |"));
  EXPECT_THAT(row_words(missed_control_results().cells[1]), HasSubstr("✗ must be found to differ"));
  CellResult near = r.cells[0];
  near.verdict = VerdictKind::inconclusive;
  near.outcome->seeds_needed = 6;
  near.outcome->seeds_needed_half = 44;
  EXPECT_THAT(
      row_words(near),
      HasSubstr("the difference may be close to the margin; 80 % chance to decide: 44 seeds if it is half the margin"));
}

TEST(AnswerRow, SaysWhichSavesOfCheckpointsFailed) {
  Results r = outcome_results();
  r.cells[0].failed_saves = "2 of 8 saves failed, the first: epoch_0_step_8 was not saved";
  EXPECT_THAT(row_words(r.cells[0]), HasSubstr("checkpoints: 2 of 8 saves failed"));
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
  r.cells[0].expected = {r.cells[0].verdict};
  EXPECT_EQ(status_of(r).word, "As expected");
  EXPECT_EQ(status_of(r).detail,
            "1 cell came out as the config expects; it states no expectation of the other 1.");
  r.cells[1].expected = {r.cells[1].verdict};
  EXPECT_EQ(status_of(r).detail, "All 2 cells came out as the config expects.");
}

TEST(NeededWords, SeedsAreNotCountedForADifferenceThatTheIntervalLeavesOut) {
  Outcome outcome = *outcome_results().cells[0].outcome;
  outcome.seeds_needed = 34;
  outcome.seeds_needed_half = 121;
  outcome.primary.interval = {-0.01, 0.05, 0.95};
  EXPECT_EQ(needed_words(outcome),
            "80 % chance to decide: 34 seeds if there is no difference, 121 if it is half the margin");
  outcome.primary.interval = {0.01, 0.05, 0.95};
  EXPECT_EQ(needed_words(outcome), "not 0; 80 % chance to decide: 121 seeds if the difference is half the margin");
  outcome.primary.interval = {0.02, 0.05, 0.95};
  EXPECT_EQ(needed_words(outcome), "not 0: the difference may be larger than the margin");
}

TEST(AnswerRow, AnUnexplainedDifferenceSaysWhereItIs) {
  CellResult cell = outcome_results().cells[1];
  cell.mechanism->cause = Cause{"unexplained", 0, "no known cause fits; local gradients: head 8 (the world size) times", "Look."};
  EXPECT_THAT(row_words(cell),
              testing::AllOf(HasSubstr("energies (from step 0)"), testing::Not(HasSubstr("unexplained"))));
}

TEST(WithoutSharedWords, LeavesNamesThatTellCellsApart) {
  EXPECT_EQ(without_shared_words({"8x3 global", "8x3 local", "8x3 global lr_rule=sqrt"}),
            (std::vector<std::string>{"global", "local", "global lr_rule=sqrt"}));
  EXPECT_EQ(without_shared_words({"8x3 global", "8x3"}), (std::vector<std::string>{"global", "8x3"}));
  EXPECT_EQ(without_shared_words({"8x3 global"}), std::vector<std::string>{"8x3 global"});
  const std::vector<std::string> told =
      told_apart({"a run with a name that is longer than two lines of any label in a plot, first",
                  "a run with a name that is longer than two lines of any label in a plot, second"});
  EXPECT_NE(told[0], told[1]);
}

TEST(DisagreesInSign, NotByLessThanAMillionthOfTheValue) {
  MetricDifference accuracy{"accuracy_24", 0.5, 0.4, -0.1, 0.01, {-0.12, -0.08, 0.95}, true},
      loss{"loss", 1.0, 1 - 2e-7, -2e-7, 1e-8, {-3e-7, -1e-7, 0.95}, false};
  EXPECT_FALSE(disagrees_in_sign(accuracy, loss));
  loss.mean = -2e-6;
  EXPECT_TRUE(disagrees_in_sign(accuracy, loss));
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(SignedNumber, GivesZeroOneSign) {
  EXPECT_EQ(signed_number(-0.0001, 3), "+0.000");
  EXPECT_EQ(signed_number(-0.0, 1), "+0.0");
  EXPECT_EQ(signed_number(-0.0941, 3), "−0.094");
  EXPECT_EQ(signed_number(0.5, 3), "+0.500");
}

TEST(SignedNumber, NamesWhatIsNoNumber) {
  EXPECT_EQ(signed_number(kNaN, 3), "not a number");
  EXPECT_EQ(signed_number(-kInfinite, 3), "−infinite");
  EXPECT_EQ(signed_number(1e300, 3), "+1.00e+300");
}

TEST(CompactNumber, KeepsAboutFourDigits) {
  EXPECT_EQ(compact_number(0), "0");
  EXPECT_EQ(compact_number(0.43312), "0.433");
  EXPECT_EQ(compact_number(12.3456), "12.35");
  EXPECT_EQ(compact_number(-1234.5), "−1234");
  EXPECT_EQ(compact_number(1.2e-7), "1.20e-07");
  EXPECT_EQ(compact_number(kNaN), "not a number");
}

TEST(DecimalsFor, ShowATenthOfTheUnit) {
  EXPECT_EQ(decimals_for(0.03), 3);
  EXPECT_EQ(decimals_for(0.5), 2);
  EXPECT_EQ(decimals_for(20), 0);
  EXPECT_EQ(decimals_for(0), 3);
  EXPECT_EQ(decimals_for(kNaN), 3);
}

TEST(BandWords, SayShareInsideAndMultipleOutside) {
  EXPECT_EQ(band_words(0), "0 % of tolerance");
  EXPECT_EQ(band_words(0.19), "19 % of tolerance");
  EXPECT_EQ(band_words(0.001), "< 1 % of tolerance");
  EXPECT_EQ(band_words(12.4), "12 × tolerance");
  EXPECT_EQ(band_share(86000), "8.6e+04 ×");
  EXPECT_EQ(band_share(kInfinite), "infinite ×");
}

TEST(BandShare, NeverRoundsAnExcessDownToTheEdge) { EXPECT_EQ(band_share(1.0001), "1.0 ×"); }

TEST(ShareOfBand, IsInfiniteOnlyWhereAnEmptyBandIsLeft) {
  GradientSignature s;
  EXPECT_EQ(share_of_band(s), 0);
  s.difference = 1e-9;
  EXPECT_EQ(share_of_band(s), kInfinite);
  s.band = 2e-9;
  EXPECT_DOUBLE_EQ(share_of_band(s), 0.5);
}

TEST(SeedsWords, JoinRuns) {
  EXPECT_EQ(seeds_words({0, 1, 2, 3}), "0–3");
  EXPECT_EQ(seeds_words({0, 1, 5, 7, 8, 9}), "0, 1, 5, 7–9");
  EXPECT_EQ(seeds_words({}), "");
}

TEST(NiceTicks, AreRoundAndInside) {
  const Ticks ticks = nice_ticks(-0.41, 0.13, 7);
  EXPECT_EQ(ticks.decimals, 1);
  ASSERT_EQ(ticks.values.size(), 6u);
  EXPECT_DOUBLE_EQ(ticks.values.front(), -0.4);
  EXPECT_EQ(ticks.values[4], 0);
}

TEST(NiceTicks, GiveNoneWithoutARange) {
  EXPECT_TRUE(nice_ticks(1, 1, 5).values.empty());
  EXPECT_TRUE(nice_ticks(kNaN, 1, 5).values.empty());
}

TEST(StepTicks, AreWholeNumbers) {
  for (const double high : {1.0, 3.0, 29.0, 600.0, 1e6}) {
    const Ticks ticks = step_ticks(high, 7);
    ASSERT_GE(ticks.values.size(), 2u) << high;
    for (const double tick : ticks.values) EXPECT_EQ(tick, static_cast<int64_t>(tick));
    EXPECT_LE(ticks.values.back(), high);
  }
}

}  // namespace
}  // namespace lockstep
