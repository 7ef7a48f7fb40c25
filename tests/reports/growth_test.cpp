#include "reports/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/verdict/results/words.h"
#include "reports/html.h"
#include "reports/markdown.h"
#include "reports/terminal.h"
#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Rows = std::vector<std::pair<std::string, std::string>>;

Rows config_with(const std::string& key, const std::string& value, Rows rows) {
  for (auto& [name, text] : rows) {
    if (name == key) text = value;
  }
  return rows;
}

Growth::Rule rule(const std::string& name, double exponent, double mean) {
  Growth::Rule rule{"8x3 local lr_rule=" + name, name, exponent, VerdictKind::inconclusive, {}};
  rule.difference.metric = "accuracy_24";
  rule.difference.mean = mean;
  rule.difference.interval = {mean - 0.01, mean + 0.01, 0.95};
  rule.n = std::isnan(mean) ? 0 : 10;
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
      text, AllOf(HasSubstr("learning-rate rules, 1x3 to 8x3: difference, its 95 % interval, n\n"),
                  HasSubstr("  none       exponent 0.00  −0.100  [−0.110, −0.090]  n 10  shown to be worse\n"),
                  HasSubstr("  sqrt       exponent 0.50  +0.000  [−0.010, +0.010]  n 10  best mean\n"),
                  HasSubstr("  linear     exponent 1.00  −0.060  [−0.070, −0.050]  n 10  not shown to be worse\n"),
                  HasSubstr("  adam_sqrt  exponent 0.50  —       —                 n —  not judged\n"),
                  HasSubstr("From 1x3 to 8x3 (3 to 24 rows) sqrt has the best mean 24-way accuracy.\n")));
  EXPECT_THAT(text,
              AllOf(HasSubstr("gradient noise scale\n"),
                    HasSubstr("35 rows (95 % interval 28 to infinite), over 400 steps; Holds for ranks of 3 rows"),
                    HasSubstr("over 400 steps; as above\n")));
}

TEST(GrowthReport, IsATableInMarkdown) {
  const std::string text = markdown_summary(grown());
  EXPECT_THAT(
      text,
      AllOf(
          HasSubstr("### Learning-rate rules, 1x3 to 8x3"),
          HasSubstr("| sqrt | 0.50 | +0.000 | \\[−0.010, +0.010\\] | 10 | best mean |"),
          HasSubstr("| adam\\_sqrt | 0.50 | — | — | — | not judged |"), HasSubstr("### Gradient noise scale"),
          HasSubstr("| 35 rows (95 % interval 28 to infinite), over 400 steps | Holds for ranks of 3 rows \\| alone. |")));
}

/// At 24 rows against 24, without a rule of the rate: what a noise scale or a rule would say answers nothing.
Results at_equal_batch() {
  Results results = grown();
  const auto ruled = [](const CellResult& cell) { return cell.scenario.find("lr_rule") != std::string::npos; };
  std::erase_if(results.cells, ruled);
  Growth& growth = results.growth[0];
  growth.reference = "1x24 global";
  growth.from = {1, 24};
  growth.from_batch = 24;
  growth.rules = {rule("none", std::nan(""), -0.1)};
  growth.best = "none";
  return results;
}

TEST(GrowthReport, IsLeftOutWhereNeitherBatchNorRuleVaries) {
  const Results equal = at_equal_batch();
  ASSERT_FALSE(varies_batch_or_rate_rule(equal));
  for (const std::string& text : {terminal_table(equal, false, 118), markdown_summary(equal), html_report(equal)}) {
    EXPECT_THAT(text, AllOf(Not(HasSubstr("oise scale")), Not(HasSubstr("ules of the learning rate")),
                            Not(HasSubstr("id=\"growth\"")), Not(HasSubstr("id=\"noise-scale\"")),
                            Not(HasSubstr("has the best mean"))));
  }
  Results grows = equal;
  grows.growth[0].from_batch = 3;
  Results ruled = equal;
  ruled.cells[0].config = config_with("lr_rule", "sqrt", ruled.cells[0].config);
  for (const Results& varied : {grows, ruled}) {
    EXPECT_THAT(terminal_table(varied, false, 118), HasSubstr("learning-rate rules"));
    EXPECT_THAT(markdown_summary(varied), HasSubstr("### Gradient noise scale"));
    EXPECT_THAT(html_report(varied), AllOf(HasSubstr("id=\"growth\""), HasSubstr("id=\"noise-scale\"")));
  }
}

TEST(RateScaling, IsVariedByTheBatchOrByARuleOfSeveralRanks) {
  Results results;
  const auto add = [&results](Layout layout, const std::string& rule) -> CellResult& {
    CellResult& cell = results.cells.emplace_back();
    cell.layout = layout;
    cell.config = {{"lr_rule", rule}};
    cell.reference = "reference";
    return cell;
  };
  results.references = {{"reference", {}, {{"lr_rule", "linear"}}, {}, Layout{1, 24}}};
  add({8, 3}, "none");
  EXPECT_FALSE(varies_batch_or_rate_rule(results)) << "linear changes nothing in one process";
  add({8, 3}, "sqrt").power_control = true;
  add({8, 6}, "sqrt").noise = true;
  EXPECT_FALSE(varies_batch_or_rate_rule(results)) << "neither controls nor A/A pairs ask";
  Results ruled = results, grown = results;
  ruled.cells[0].config[0].second = "linear";
  EXPECT_TRUE(varies_batch_or_rate_rule(ruled)) << "eight times the rate of the reference";
  grown.cells[0].layout = Layout{8, 6};
  EXPECT_TRUE(varies_batch_or_rate_rule(grown));
}

TEST(GrowthReport, IsSilentWhereNothingGrew) {
  for (const std::string& text :
       {terminal_table(outcome_results(), false, 118), markdown_summary(outcome_results())})
    EXPECT_THAT(text, AllOf(Not(HasSubstr("noise scale")), Not(HasSubstr("ules of the learning rate"))));
}

}  // namespace
}  // namespace lockstep
