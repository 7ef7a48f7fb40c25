#include "reports/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Markdown, EveryRowOfTheTableHasEightColumns) {
  for (const auto& fixture : {outcome_results, missed_control_results, mechanism_results, hostile_results}) {
    std::istringstream in(markdown_summary(fixture()));
    std::string line;
    std::size_t rows = 0;
    bool in_block = false;
    while (std::getline(in, line)) {
      if (line.starts_with("```")) in_block = !in_block;
      if (in_block || !line.starts_with("| ")) continue;
      std::size_t bars = 0;
      for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
      EXPECT_EQ(bars, 9u) << line;
      ++rows;
    }
    EXPECT_EQ(rows, fixture().cells.size() + 1);
  }
}

TEST(Markdown, LetsNoForeignMarkupThrough) {
  const std::string text = markdown_summary(hostile_results());
  EXPECT_THAT(text, Not(HasSubstr("<img")));
  EXPECT_THAT(text, Not(HasSubstr("\n## heading")));
  EXPECT_THAT(text, HasSubstr("`````text\n"));  // longer than the four ticks inside
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Markdown, StaysBelowTheLimitAndSaysWhatIsLeftOut) {
  Results r = outcome_results();
  CellResult loud = r.cells[4];
  loud.failure->last_lines.assign(20, std::string(4000, '`') + std::string(4000, '<'));
  r.cells.assign(4000, loud);
  const std::string text = markdown_summary(r);
  EXPECT_LE(text.size(), kLargestMarkdownBytes);
  EXPECT_THAT(text, HasSubstr("the rest is in report.html"));
  EXPECT_THAT(text, HasSubstr("The whole matrix again"));
  EXPECT_THAT(markdown_summary(outcome_results()), Not(HasSubstr("the rest is in")));
}

TEST(Markdown, ShowsUnexpectedCellsWithTheirLastLinesAndCommand) {
  const std::string text = markdown_summary(outcome_results());
  EXPECT_THAT(text, HasSubstr("### × 8x3 global lr\\_rule=linear"));
  EXPECT_THAT(text, HasSubstr("rank 3: all_gather loss.actions, 1152 bytes"));
  EXPECT_THAT(text, Not(HasSubstr("### ≠ 8x3 local")));
}

TEST(Markdown, CutsNoCauseOffHoweverLongTheEvidenceIs) {
  Results results = mechanism_results();
  results.cells[2].mechanism->first_divergence->sentence = std::string(600, 'x');
  results.cells[2].mechanism->cause = Cause{"gradient-times-world", 0.98, "8 times", "Divide by the world size once."};
  EXPECT_THAT(markdown_summary(results), HasSubstr("cause: gradient-times-world. Divide by the world size once."));
}

}  // namespace
}  // namespace lockstep
