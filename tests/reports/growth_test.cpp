#include "reports/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reports/markdown.h"
#include "reports/terminal.h"
#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Growth::Rule rule(const std::string& name, double exponent, double mean) {
  Growth::Rule rule{"8x3 local lr_rule=" + name, name, exponent, VerdictKind::inconclusive, {}};
  rule.difference.metric = "accuracy_24";
  rule.difference.mean = mean;
  rule.difference.interval = {mean - 0.01, mean + 0.01, 0.95};
  return rule;
}

Results grown() {
  Results results = outcome_results();
  Growth growth;
  growth.reference = "1x3 local";
  growth.from = {1, 3};
  growth.to = {8, 3};
  growth.from_batch = 3;
  growth.to_batch = 24;
  growth.rules = {rule("none", 0, -0.1), rule("sqrt", 0.5, 0), rule("linear", 1, -0.06),
                  rule("adam_sqrt", 0.5, std::nan(""))};
  growth.best = "sqrt";
  growth.not_worse = {"linear"};
  growth.sentence = "From 1x3 to 8x3 (3 to 24 rows) sqrt has the best mean 24-way accuracy.";
  results.growth = {growth};
  NoiseScale scale;
  scale.batch = 35.4;
  scale.interval = {28.2, std::numeric_limits<double>::infinity(), 0.95};
  scale.steps = 400;
  scale.caveat = "Holds for ranks of 3 rows | alone.";
  results.cells[0].noise_scale = results.cells[2].noise_scale = results.cells[3].noise_scale = scale;
  // On a terminal those alone that a rule rests on.
  results.growth[0].rules[0].cell = results.cells[0].scenario;
  results.growth[0].rules[1].cell = results.cells[2].scenario;
  return results;
}

TEST(GrowthReport, ShowsEachRuleAndWhereItStands) {
  const std::string text = terminal_table(grown(), false, 118);
  EXPECT_THAT(
      text, AllOf(HasSubstr("rules of the learning rate, 1x3 to 8x3\n"),
                  HasSubstr("  none       exponent 0.00  −0.100  [−0.110, −0.090]  shown to be worse\n"),
                  HasSubstr("  sqrt       exponent 0.50  +0.000  [−0.010, +0.010]  best mean\n"),
                  HasSubstr("  linear     exponent 1.00  −0.060  [−0.070, −0.050]  not shown to be worse\n"),
                  HasSubstr("  adam_sqrt  exponent 0.50  —       —                 not judged\n"),
                  HasSubstr("From 1x3 to 8x3 (3 to 24 rows) sqrt has the best mean 24-way accuracy.\n")));
  EXPECT_THAT(text,
              AllOf(HasSubstr("gradient noise scale\n"),
                    HasSubstr("35 rows (28 to infinite), over 400 steps; Holds for ranks of 3 rows | alone."),
                    HasSubstr("over 400 steps; as above\n")));
}

TEST(GrowthReport, IsATableInMarkdown) {
  const std::string text = markdown_summary(grown());
  EXPECT_THAT(
      text,
      AllOf(
          HasSubstr("### Rules of the learning rate, 1x3 to 8x3"),
          HasSubstr("| sqrt | 0.50 | +0.000 | \\[−0.010, +0.010\\] | best mean |"),
          HasSubstr("| adam\\_sqrt | 0.50 | — | — | not judged |"), HasSubstr("### Gradient noise scale"),
          HasSubstr("| 35 rows (28 to infinite), over 400 steps | Holds for ranks of 3 rows \\| alone. |")));
}

TEST(GrowthReport, IsSilentWhereNothingGrew) {
  for (const std::string& text :
       {terminal_table(outcome_results(), false, 118), markdown_summary(outcome_results())})
    EXPECT_THAT(text, AllOf(Not(HasSubstr("noise scale")), Not(HasSubstr("ules of the learning rate"))));
}

}  // namespace
}  // namespace lockstep
