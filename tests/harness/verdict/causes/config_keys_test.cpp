// Runs that are configured otherwise: judged by the reference's config, and named by the key.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/compare/forced/forced.h"
#include "tests/support/planted_causes.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::alone;
using support::toy_config;
using support::ToyFaults;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class ConfigKeys : public ::testing::Test {
 protected:
  /// A cell with this config against a reference with that one, each alone or on ranks.
  Mechanism judged(const RunConfig& of_reference, const RunConfig& config, std::vector<std::string> declared = {},
                   const ToyFaults& faults = {}) {
    const RunConfig reference = alone(of_reference);
    ForcedInputs inputs = support::toy_runs(folder_ / std::to_string(number_++), reference, config, faults);
    inputs.declared = std::move(declared);
    return judge_forced(inputs);
  }
  TempFolder folder_;
  int number_ = 0;
};

TEST_F(ConfigKeys, AnotherOptimizerIsADivergenceAndItsKeyTheCause) {
  struct Changed {
    const char* told;
    void (*change)(RunConfig&);
  };
  const Changed all[] = {
      {"optimizer adam / sgd", [](RunConfig& c) { c.optimizer = OptimizerKind::sgd; }},
      {"weight_decay 0 / 0.1", [](RunConfig& c) { c.weight_decay = 0.1; }},
      {"beta1 0.9 / 0.5", [](RunConfig& c) { c.beta1 = 0.5; }},
      {"beta2 0.999 / 0.9", [](RunConfig& c) { c.beta2 = 0.9; }},
      {"eps 1e-08 / 0.1", [](RunConfig& c) { c.eps = 0.1; }},
      {"clip_norm 0 / 0.001", [](RunConfig& c) { c.clip_norm = 0.001; }},
  };
  RunConfig reference = toy_config();
  reference.optimizer = OptimizerKind::adam;
  reference.clip_norm = 0;
  for (const Changed& it : all) {
    SCOPED_TRACE(it.told);
    RunConfig cell = reference;
    it.change(cell);
    const Mechanism result = judged(reference, cell);
    EXPECT_EQ(result.verdict, VerdictKind::divergent) << result.sentence;
    EXPECT_THAT(result.sentence, StartsWith(std::string("Configs differ in ") + it.told + ". "));
    ASSERT_TRUE(result.cause.has_value());
    EXPECT_EQ(result.cause->code, "config-differs") << result.cause->evidence;
    EXPECT_THAT(result.cause->evidence, HasSubstr(it.told));
    EXPECT_FALSE(result.cause->remedy.empty());
    // An axis over the key asks what each of its values does by itself.
    const std::string key = std::string(it.told).substr(0, std::string(it.told).find(' '));
    const Mechanism asked = judged(reference, cell, {key});
    EXPECT_EQ(asked.verdict, VerdictKind::within_envelope) << asked.sentence;
    EXPECT_THAT(asked.sentence, StartsWith(std::string("Configs differ in ") + it.told + ". "));
  }
}

TEST_F(ConfigKeys, AKeyThatChangesNothingIsToldAndNoDivergence) {
  RunConfig reference = toy_config(), cell = toy_config();
  reference.optimizer = cell.optimizer = OptimizerKind::adam;
  reference.clip_norm = cell.clip_norm = 0;
  cell.momentum = 0.9;  // of sgd alone
  const Mechanism result = judged(reference, cell);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope) << result.sentence;
  EXPECT_THAT(result.sentence, StartsWith("Configs differ in momentum 0 / 0.9. "));
}

TEST_F(ConfigKeys, AKeyThatActsLaterInTheStepIsNotTheCause) {
  RunConfig cell = toy_config();
  cell.weight_decay = 0.1;
  ToyFaults faults;
  faults.on_samples = [](support::ToyStep& it) {
    if (it.step != 1) return;
    for (support::ToyRank& rank : it.ranks)
      for (int64_t& sample : rank.samples) sample = (sample + 1) % 6;
  };
  RunConfig reference = toy_config();
  const Mechanism result = judged(reference, cell, {"weight_decay"}, faults);
  ASSERT_TRUE(result.cause.has_value()) << result.sentence;
  EXPECT_EQ(result.first_divergence->phase, "samples");
  EXPECT_NE(result.cause->code, "config-differs") << result.cause->evidence;
}

TEST_F(ConfigKeys, EqualConfigsAreNotSpokenOf) {
  const RunConfig config = toy_config();
  const Mechanism result = judged(config, config);
  EXPECT_EQ(result.verdict, VerdictKind::within_envelope);
  EXPECT_THAT(result.sentence, testing::Not(HasSubstr("onfigs differ")));
}

}  // namespace
}  // namespace lockstep
