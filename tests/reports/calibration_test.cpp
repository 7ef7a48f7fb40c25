#include "reports/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/markdown.h"
#include "reports/terminal.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

Results results() {
  Results results;
  results.name = "calibration";
  results.question = "calibration";
  results.cells.resize(1);
  results.cells[0].scenario = "1x24";
  results.cells[0].verdict = VerdictKind::identical;
  Calibration& c = results.calibration.emplace();
  c.rates = {{"5 pairs: equivalent at +margin", 1012, 20000, {0.0449, 0.0568, 0.9998}, 0.05, true, true},
             {"5 pairs: interval covers", 18000, 20000, {0.891, 0.908, 0.9998}, 0.95, false, false},
             {"looks: equivalent at 0", 19000, 20000, {0.944, 0.955, 0.9998}, -1, false, true}};
  c.power = {{10, 0.6, 0.5, 0.61, {0.597, 0.623, 0.9998}, 0.612},
             {10, 1, 0.5, 0.3, {0.288, 0.312, 0.9998}, 0.35}};
  c.pool_runs = 100;
  c.pool_mean = 0.4375;
  c.pool_sd = 0.0201;
  c.passed = false;
  results.summary.exit_code = 1;
  results.summary.cells = 1;
  results.summary.runs = 100;
  results.summary.sentence = "The tests do not meet their stated rates: 5 pairs: interval covers.";
  return results;
}

TEST(CalibrationReport, TheTerminalShowsRatesAndPowers) {
  const std::string text = terminal_table(results(), false, 118);
  EXPECT_THAT(
      text,
      HasSubstr("5 pairs: equivalent at +margin   1012 of 20000   5.06 %    4.49 to 5.68 %    at most 5 %"));
  EXPECT_THAT(text, HasSubstr("at least 95 %  ✗"));
  EXPECT_THAT(text, HasSubstr("99.98 % interval"));
  EXPECT_THAT(text, testing::AllOf(HasSubstr("The pool: 100 real runs, mean 0.4375,"), HasSubstr("standard deviation 0.0201.")));
  EXPECT_THAT(text, HasSubstr("do not meet their stated rates"));
  EXPECT_THAT(text, Not(HasSubstr("identical"))) << "the pool is compared with nothing";
}

TEST(CalibrationReport, MarkdownHasTheSameTables) {
  const std::string text = markdown_summary(results());
  EXPECT_THAT(text, HasSubstr("| 5 pairs: equivalent at "));
  EXPECT_THAT(text, HasSubstr("| 10 pairs | 0.6 | 0.5 | 61.00 % |"));
  EXPECT_THAT(text, HasSubstr("✗"));
}

TEST(CalibrationReport, APowerFitsTheoryInsideItsInterval) {
  const Results r = results();
  EXPECT_TRUE(is_as_theory(r.calibration->power[0]));
  EXPECT_FALSE(is_as_theory(r.calibration->power[1]));
}

}  // namespace
}  // namespace lockstep
