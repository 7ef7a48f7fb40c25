#include "harness/verdict/plan/checks.h"

#include <gtest/gtest.h>

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/question.h"
#include "scenarios/energy/config.h"
#include "tests/harness/verdict/plan/matrix_helpers.h"

namespace lockstep {
namespace {

/// Keys and messages of what is wrong, one a line.
std::string wrong_with(const RunConfig& config, std::string_view question = "mechanism") {
  std::string text;
  const QuestionPlan& asks = question_named(question);
  for (const auto& [key, message] : training_problems(config, asks)) text += key + ": " + message + "\n";
  for (const auto& [key, message] : spec_of(config).problems(config, {asks.against_plain(), false})) {
    text += key + ": " + message + "\n";
  }
  return text;
}

bool names(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

TEST(TrainingChecks, SayNothingOfAPlainRun) { EXPECT_EQ(wrong_with({}), ""); }

TEST(TrainingChecks, RefuseAdamSqrtWhereItHasNoMeaning) {
  RunConfig config;
  config.layout = {8, 3};
  config.lr_rule = LrRule::adam_sqrt;
  EXPECT_EQ(wrong_with(config), "");
  config.optimizer = OptimizerKind::sgd;
  EXPECT_TRUE(names(wrong_with(config), "lr_rule: lr_rule adam_sqrt scales Adam's betas"))
      << wrong_with(config);
  config.optimizer = OptimizerKind::adamw;
  config.layout = {10, 3};
  EXPECT_TRUE(names(wrong_with(config), "beta1 0.9 and beta2 0.999 must exceed 0.9")) << wrong_with(config);
  config.beta1 = 0.95;
  EXPECT_EQ(wrong_with(config), "");
}

TEST(TrainingChecks, RefuseCheckpointsOfFaultsAndByMetricsThatDecideNothing) {
  RunConfig config;
  config.checkpoint.every = 10;
  EXPECT_EQ(wrong_with(config), "");
  config.checkpoint.best = "accuracy_24";
  EXPECT_EQ(wrong_with(config), "");
  config.checkpoint.best = "gradient_norm";
  EXPECT_TRUE(names(wrong_with(config), "checkpoint.best gradient_norm is no metric of evaluations")) << wrong_with(config);
  config.checkpoint.best.clear();
  config.mutant.name = "flip_bit";
  EXPECT_TRUE(names(wrong_with(config), "a cell with a mutant cannot have checkpoint.every")) << wrong_with(config);
}

TEST(TrainingChecks, RefuseASharedUpdateWhereNothingCanBeShared) {
  RunConfig config;
  config.layout = {8, 3};
  config.update = UpdatePartition::sharded;
  EXPECT_EQ(wrong_with(config), "");
  config.checkpoint.every = 10;
  EXPECT_TRUE(names(wrong_with(config), "update: checkpoints are made of a whole optimizer state")) << wrong_with(config);
  config.checkpoint.every = 0;
  config.arithmetic = Arithmetic::exact;
  EXPECT_TRUE(names(wrong_with(config), "update: exact arithmetic sums every gradient on every rank")) << wrong_with(config);
}

TEST(TrainingChecks, RefuseBfloat16InACertificate) {
  RunConfig config;
  config.precision = Precision::bfloat16;
  EXPECT_EQ(wrong_with(config), "");
  EXPECT_TRUE(names(wrong_with(config, "certificate"), "precision: a certificate"));
  config.oracle_world = 3;
  EXPECT_TRUE(names(wrong_with(config), "precision: a certificate"));
}

TEST(TrainingChecks, RefusePerturbationsThatChangeMoreThanTheySay) {
  RunConfig config;
  config.perturb = Perturbation::row_order;
  EXPECT_EQ(wrong_with(config), "");
  EXPECT_TRUE(names(wrong_with(config, "certificate"), "perturb: a certificate"));
  RunConfig by_rank = config;
  by_rank.rank_seed = RankSeed::plus_rank;
  EXPECT_TRUE(names(wrong_with(by_rank), "rank_seed keyed"));
  RunConfig as_written = config;
  energy(as_written).layer.as_written = true;
  EXPECT_EQ(wrong_with(as_written), "") << "no negatives are made";
  energy(as_written).negatives = Negatives::layer;
  EXPECT_TRUE(names(wrong_with(as_written), "layer.as_written"));
}

TEST(TrainingChecks, RefusePerturbationsThatChangeNothing) {
  RunConfig config;
  config.perturb = Perturbation::row_order;
  config.layout = {24, 1};
  EXPECT_TRUE(names(wrong_with(config), "no other order"));
  config.layout = {12, 2};
  EXPECT_EQ(wrong_with(config), "");
  config.accumulation = 2;
  EXPECT_TRUE(names(wrong_with(config), "no other order"));
  config = {};
  config.perturb = Perturbation::random_draws;
  energy(config).dropout = energy(config).context_noise = 0;
  EXPECT_TRUE(names(wrong_with(config), "nothing is drawn"));
  energy(config).negatives = Negatives::layer;
  EXPECT_EQ(wrong_with(config), "");
}

TEST(TrainingChecks, StandInTheMatrixWithTheirPlace) {
  const std::vector<std::string> problems =
      problems_of(kHead + "axes:\n  layout: [8x3]\noptimizer: sgd\nlr_rule: adam_sqrt\n");
  ASSERT_FALSE(problems.empty());
  EXPECT_TRUE(names(problems.front(), "m.yaml:7:1:")) << problems.front();
  EXPECT_TRUE(names(problems.front(), "adam_sqrt")) << problems.front();
}

}  // namespace
}  // namespace lockstep
