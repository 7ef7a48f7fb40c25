#include "harness/verdict/config/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/config/catalogue.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kOutcome =
    kHead +
    "question: outcome\nseeds: 0..4\naxes: {layout: [8x3], negatives: [global, local]}\n"
    "power_controls: [{negatives: local}]\n";

TEST(Metrics, AMisspeltOneIsRefusedWithItsPlaceAndTheNearest) {
  EXPECT_THAT(
      problems_of(kOutcome + "primary: {metric: acuracy_24}\n"),
      ElementsAre(AllOf(HasSubstr("m.yaml:8:19: primary.metric must be one of the"),
                        HasSubstr("of `lockstep list`, not 'acuracy_24'; did you mean accuracy_24?"))));
  EXPECT_THAT(problems_of(kOutcome, set({"primary.metric=acuracy_24"})),
              ElementsAre(HasSubstr("--set primary.metric=acuracy_24: primary.metric must be one of")));
  EXPECT_THAT(problems_of(kHead + "layout: 8x3\nprimary: {metric: loss}\n"),
              ElementsAre(HasSubstr("5:19: primary.metric")))
      << "a curve is no metric, whatever the question";
}

TEST(Metrics, AllOfTheListAreAccepted) {
  const std::string explicit_too =
      kHead +
      "question: outcome\nseeds: 0..4\nnegatives: mixed\naxes: {layout: [8x3], lr: [1, 2]}\n"
      "power_controls: [{lr: 2}]\n";
  for (const CatalogueEntry& entry : catalogue_metrics()) {
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_THAT(problems_of(explicit_too + "primary: {metric: " + std::string(entry.name) + "}\n"), IsEmpty())
        << entry.name;
  }
}

TEST(Metrics, OneThatTheRunsDoNotMeasureIsRefused) {
  EXPECT_THAT(problems_of(kOutcome + "primary: {metric: accuracy_24_permuted_context}\n"),
              ElementsAre(HasSubstr(
                  "8:11: cell '8x3 global' and 1 more: accuracy_24_permuted_context is measured where "
                  "negatives are made, by negatives layer or mixed")));
  const std::string area = kOutcome + "primary: {metric: auc_accuracy_24}\n";
  EXPECT_THAT(problems_of(area), IsEmpty());
  EXPECT_THAT(problems_of(area + "eval_every: 0\n"),
              Contains(HasSubstr("two evaluations or more, and there is one: eval_every is 0")));
  EXPECT_THAT(problems_of(area + "steps: 25\n"), Contains(HasSubstr("eval_every is 25, steps 25")));
  EXPECT_THAT(problems_of(area + "steps: 26\n"), IsEmpty()) << "after 25 steps and at the end";
}

TEST(Metrics, OneThatTheDataAreTooFewForIsRefused) {
  const std::string few =
      "data: {source: synthetic, series: 6, holdout_series: 2, series_steps: 60}\n";  // 19 each
  EXPECT_THAT(problems_of(kOutcome + few), IsEmpty()) << "114 test pairs";
  EXPECT_THAT(problems_of(kOutcome + few + "primary: {metric: accuracy_256}\n"),
              Contains(AllOf(
                  HasSubstr("accuracy_256 needs 256 test pairs, and there are 114; more come with a smaller "
                            "data.context_steps (16), data.action_steps (8) or data.stride (2)"),
                  HasSubstr("data.series (6)"))));
  const std::string unfitted = "data: {source: synthetic, holdout_series: 1, series_steps: 60}\n";
  EXPECT_THAT(problems_of(kOutcome + unfitted + "primary: {metric: cross_entropy_24_fitted}\n"),
              Contains(AllOf(HasSubstr("needs 24 held-out pairs, and there are 19"),
                             HasSubstr("a larger data.holdout_series (1)"))));
}

TEST(Metrics, TooFewTrainingPairsSayWhatGivesMore) {
  EXPECT_THAT(
      problems_of(kHead + "layout: 8x3\ndata: {source: synthetic, series: 5, stride: 50}\n"),
      ElementsAre(
          AllOf(HasSubstr("2 training pairs are fewer than the 24 rows of a step; more come with a smaller"),
                HasSubstr("data.stride (50)"), HasSubstr("data.holdout_series (4)"),
                HasSubstr("data.series (5)"))));
  EXPECT_THAT(
      problems_of(kHead +
                  "layout: 8x3\ndata: {source: synthetic, series: 5, stride: 50, drop_last: false}\n"),
      IsEmpty())
      << "without drop_last a step takes what there is";
}

TEST(TargetMetric, IsOfAMetricThatIsFollowed) {
  EXPECT_THAT(problems_of(kOutcome + "primary: {target: 0.4}\n"), IsEmpty());
  EXPECT_THAT(
      problems_of(kOutcome + "primary: {metric: accuracy_3, target: 0.4}\n"),
      ElementsAre(
          "m.yaml:8:31: steps to a target come from evaluations during the run, and these do not measure "
          "accuracy_3"));
}

TEST(Expectations, ThatEarlierOnesCoverAreRefused) {
  const std::string cells = kHead + "axes: {layout: [8x3, 4x6], negatives: [global, local]}\nexpect:\n";
  EXPECT_THAT(problems_of(cells + "  - {when: {negatives: local}, verdict: divergent}\n"
                                  "  - {when: {layout: 8x3, negatives: local}, verdict: identical}\n"),
              ElementsAre("m.yaml:7:5: this expectation never applies: the one cell that it matches is taken "
                          "by the one at 6:5"));
  EXPECT_THAT(
      problems_of(cells +
                  "  - {when: {layout: 8x3}, verdict: divergent}\n"
                  "  - {when: {layout: 4x6}, verdict: divergent}\n  - {when: {}, verdict: identical}\n"),
      ElementsAre("m.yaml:8:5: this expectation never applies: all 4 cells that it matches are taken by those "
                  "at 6:5, 7:5"));
  const std::string last_for_the_rest =
      cells + "  - {when: {layout: 8x3}, verdict: divergent}\n  - {when: {}, verdict: identical}\n";
  EXPECT_THAT(problems_of(last_for_the_rest), IsEmpty());
  EXPECT_THAT(problems_of(last_for_the_rest, set({"layout=8x3"})), IsEmpty())
      << "an axis that was narrowed is no mistake of the file";
}

TEST(Steps, BeyondTheRunAreRefusedUnlessItWasShortenedOnTheCommandLine) {
  const std::string short_run = kHead + "layout: 8x3\nsteps: 20\n";
  EXPECT_THAT(problems_of(short_run), IsEmpty()) << "defaults are not meant";
  const std::string snapshots = "snapshot_steps: [3, 20]\n", forced = "forced_steps: [0, 25]\n",
                    evaluations = "eval_every: 21\n";
  EXPECT_THAT(problems_of(short_run + snapshots),
              Contains("m.yaml:6:1: cell '8x3': snapshot_steps names step 20; a run of 20 steps has steps 0 to 19"));
  EXPECT_THAT(problems_of(short_run + forced),
              ElementsAre("m.yaml:6:1: forced_steps names step 25; runs of 20 steps have steps 0 to 19"));
  EXPECT_THAT(problems_of(short_run + evaluations),
              Contains(HasSubstr("6:1: cell '8x3': eval_every 21 exceeds the 20 steps of the run")));
  for (const std::string& text : {snapshots, forced, evaluations}) {
    const std::string long_run = kHead + "layout: 8x3\nsteps: 600\n" + text;
    EXPECT_THAT(problems_of(long_run), IsEmpty()) << text;
    EXPECT_THAT(problems_of(long_run, set({"steps=10"})), IsEmpty()) << text;
  }
  EXPECT_THAT(problems_of(short_run, set({"forced_steps=[25]"})),
              ElementsAre(HasSubstr("--set forced_steps=[25]: forced_steps names")));
}

}  // namespace
}  // namespace lockstep
