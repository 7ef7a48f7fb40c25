#include "reports/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/text.h"
#include "tests/support/convergence_fixture.h"
#include "tests/support/judged_fixture.h"
#include "tests/support/results_fixture.h"
#include "tests/support/suite_fixture.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(TerminalTable, StaysWithinTheWidth) {
  for (const auto& fixture : {outcome_results, missed_control_results, mechanism_results, certificate_results,
                              hostile_results, empty_results, detection_results, convergence_results, sequential_results,
                              judged_results, suite_results, wide_suite_results}) {
    for (const int width : {40, 60, 80, 100, 140}) {
      for (const std::string& line : lines_of(terminal_table(fixture(), false, width))) {
        EXPECT_LE(display_width(line), width) << line;
      }
    }
  }
}

TEST(TerminalTable, ColoursOnlyIfAskedAndChangesNothingElse) {
  const std::string plain = terminal_table(outcome_results(), false, 100),
                    colour = terminal_table(outcome_results(), true, 100);
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_NE(colour.find('\x1b'), std::string::npos);
  EXPECT_EQ(clean_text(colour), plain);
}

TEST(TerminalTable, AlignsItsColumnsByWidthNotBytes) {
  Results r = outcome_results();
  r.cells.resize(2);
  r.cells[0].scenario = "名前";
  const std::vector<std::string> lines = lines_of(terminal_table(r, false, 0));
  const auto column = [](const std::string& line, std::string_view symbol) {
    return display_width(line.substr(0, line.find(symbol)));
  };
  EXPECT_EQ(column(lines[1], "= equivalent"), column(lines[2], "≠ divergent"));
}

TEST(TerminalTable, SaysWhatWasExpectedAndHowToRepeatIt) {
  const std::string text = terminal_table(mechanism_results(), false, 0);
  EXPECT_THAT(text, HasSubstr("✗ expected within envelope; step 0, reduced gradients"));
  EXPECT_THAT(text, HasSubstr("again: lockstep run configs/smoke.yaml\n"));
}

TEST(TerminalTable, NamesCauseAndRemedyOfAnUnexpectedCellAtAnyWidth) {
  Results results = mechanism_results();
  EXPECT_THAT(terminal_table(results, false, 60), testing::Not(HasSubstr("Cause"))) << "none is known";
  results.cells[2].mechanism->cause = Cause{"gradient-times-world", 0.98, "8 times", "Divide by the world size once."};
  for (const int width : {60, 100, 0}) {
    std::string text = terminal_table(results, false, width);
    while (text.find("\n      ") != std::string::npos) text.replace(text.find("\n      "), 7, " ");  // as it was before it was wrapped
    EXPECT_THAT(text, testing::AllOf(HasSubstr("ause: gradient-times-world. Divide by the world size once."), HasSubstr("(gradient-times-world)"))) << width;
  }
}

TEST(TerminalTable, ForeignSequencesDoNotReachTheTerminal) {
  const std::string text = terminal_table(hostile_results(), false, 0);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(clean_text(text), text) << "nothing is left that a terminal would act on";
}

}  // namespace
}  // namespace lockstep
