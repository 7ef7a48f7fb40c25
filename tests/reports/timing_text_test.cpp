#include "reports/text.h"

#include <gmock/gmock.h>

#include <cmath>

#include "reports/markdown.h"
#include "reports/terminal.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

Timing timed() {
  Timing timing;
  timing.cores = 2;
  timing.processor = "a plain one";
  timing.sentence = "8 ranks share 2 cores.";
  TimingRow one{"equal global batch", {1, 24}, 3, 0.004, {0.0038, 0.0042, 1}, 6000};
  one.bytes = 0;
  one.activation_bytes = 250e3;
  one.weight_bytes = 92e3;
  TimingRow eight{
      "equal global batch", {8, 3}, 3, 0.032, {0.031, 0.034, 1}, 750, 0.125, 0.015625, 0.61, 170e3};
  eight.crowded = true;
  eight.speed_up_range = {0.118, 0.135, 1};
  eight.share_range = {0.58, 0.63, 1};
  TimingRow lost{"equal rows a rank", {4, 3}, 0, NAN, {NAN, NAN, 1}, NAN, NAN, NAN, NAN, NAN, NAN, NAN, true};
  timing.rows = {one, eight, lost};
  return timing;
}

TEST(TimingText, HasALineALayoutUnderItsGroup) {
  const std::string text = timing_table(timed(), 118);
  EXPECT_THAT(text, HasSubstr("equal global batch\n"));
  EXPECT_THAT(text, HasSubstr("1x24"));
  EXPECT_THAT(text, HasSubstr("32.00 (31.00 to 34.00)"));
  EXPECT_THAT(text, HasSubstr("0.12 (0.12 to 0.14)"));
  EXPECT_THAT(text, HasSubstr("61 % (58 to 63)"));
  EXPECT_THAT(text, HasSubstr("median of 3 runs (smallest to largest: a range, not a"));
  EXPECT_THAT(text, Not(HasSubstr("(1.00 to"))) << "the unit of its group";
  Timing uneven = timed();
  uneven.rows[1].runs = 2;
  EXPECT_THAT(timing_table(uneven, 118), HasSubstr("8x3, 2 runs *"));
  EXPECT_THAT(timing_table(uneven, 118), HasSubstr("median of the runs given beside the layout"));
  EXPECT_THAT(text, HasSubstr("8x3 *"));
  EXPECT_THAT(text, HasSubstr("* more ranks than cores"));
  EXPECT_THAT(text, HasSubstr("n/a")) << "a layout whose runs all failed";
  Timing roomy = timed();
  for (TimingRow& row : roomy.rows) row.crowded = false;
  EXPECT_THAT(timing_table(roomy, 118), Not(HasSubstr("*")));
}

TEST(TimingText, StandsInTheSummaryAndOnTheTerminalWhereLayoutsWereTimed) {
  Results results;
  results.name = "speedup";
  EXPECT_THAT(markdown_summary(results), Not(HasSubstr("## Speed")));
  EXPECT_THAT(terminal_table(results, false, 100), Not(HasSubstr("rows/s")));
  results.timing = timed();
  EXPECT_THAT(markdown_summary(results), HasSubstr("## Speed\n\n8 ranks share 2 cores."));
  EXPECT_THAT(markdown_summary(results), HasSubstr("| 1x24 | 4.00 (3.80 to 4.20) | 6000 | 1.00 |"));
  EXPECT_THAT(terminal_table(results, false, 100), HasSubstr("rows/s"));
  EXPECT_THAT(terminal_table(results, false, 100), HasSubstr("8 ranks share 2 cores."));
}

}  // namespace
}  // namespace lockstep
