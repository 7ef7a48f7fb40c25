#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/forced.h"
#include "harness/plan/config/trainer_spec.h"
#include "scenarios/energy/spec.h"
#include "tests/support/planted_causes.h"
#include "tests/support/temp_folder.h"

// The same planted faults in traces of other trainers, whose parameters and records happen to have the energy
// trainer's names: what holds for any trainer is named, and what is the energy trainer's is not.

namespace lockstep {
namespace {

using support::all_faults;
using support::alone;
using support::on_local;
using support::Planted;
using support::scale;
using support::toy_config;
using support::ToyFaults;
using support::ToyStep;

/// Codes that the energy trainer's rules alone answer with.
std::set<std::string> energy_codes() {
  std::set<std::string> codes;
  for (const CausePage& page : causes::trainer_rules("energy").pages()) codes.emplace(page.code);
  return codes;
}

class ForeignTrainer : public ::testing::Test {
 protected:
  std::optional<Cause> cause_in(const RunConfig& config, const ToyFaults& faults,
                                const std::string& trainer) {
    return compared(config, faults, trainer).mechanism.cause;
  }

  /// The cell's and the reference's traces, both of that trainer.
  Comparison compared(const RunConfig& config, const ToyFaults& faults, const std::string& trainer,
                      const std::string& of_reference = "") {
    const RunConfig reference = alone(config);
    const std::string folder = folder_ / std::to_string(runs_++);
    Comparison result = compare_forced(support::toy_runs(folder, reference, config, faults, trainer,
                                                         of_reference.empty() ? trainer : of_reference));
    if (!result.around) return result;
    result.mechanism.cause = name_cause(*result.around);
    result.around->reference_config = result.around->cell_config = nullptr;  // they end here
    return result;
  }

  TempFolder folder_;
  int runs_ = 0;
};

/// What the energy trainer's own rules find beside the codes that are its own: a sample's content by its row and
/// its column among in-batch candidates, and a second pass over tiles by the temperature's gradient.
bool needs_the_trainer(const Planted& planted) {
  static const std::set<std::string> names = {"sample-content", "dropout-not-replayed"};
  return energy_codes().contains(planted.code) || names.contains(planted.code);
}

/// Faults that these toy runs plant in the recorded loss and not in its gradients.
bool of_the_loss_alone(const Planted& planted) {
  const CausePage* page = find_cause_page(planted.code);
  return page != nullptr && page->family == "loss";
}

TEST_F(ForeignTrainer, NoFaultIsNamedByAnotherTrainersRules) {
  int own = 0, of_any = 0;
  for (const Planted& planted : all_faults()) {
    SCOPED_TRACE(planted.name);
    RunConfig config = toy_config();
    if (planted.config) planted.config(config);
    const auto cause = cause_in(config, planted.faults, "theirs");
    // A loss that is logged otherwise beside right gradients is another trainer's own matter, as are its scores.
    if (!cause && (of_the_loss_alone(planted) || planted.phase == "energies")) {
      own += needs_the_trainer(planted);
      continue;
    }
    // So are the calls that it makes from its first step on.
    const bool of_calls = planted.code == "collective-missing" || planted.code == "collective-extra" || planted.code == "wrong-root";
    if (!cause && of_calls && planted.step == 0) continue;
    // A stream that its tracer records and the reference's does not is none that differs.
    if (!cause && planted.name == std::string("a stream that the reference lacks")) continue;
    ASSERT_TRUE(cause.has_value());
    if (needs_the_trainer(planted)) {
      // Scores of candidates tell of any trainer; the rest rests on what only the energy trainer's rules know.
      EXPECT_TRUE(cause->code == "unexplained" || cause->code == planted.code) << cause->code << ": " << cause->evidence;
      ++own;
    } else {
      EXPECT_EQ(cause->code, planted.code) << cause->evidence;
      ++of_any;
    }
  }
  EXPECT_GE(own, 15);
  EXPECT_GE(of_any, 50);
}

TEST_F(ForeignTrainer, GroupsOfAKnownNameAreNobodysRole) {
  struct Scaled {
    const char* group;
    float factor;
    const char* of_energy;
  };
  for (const Scaled& it : {Scaled{"action_encoder", 0, "candidates-detached"},
                           Scaled{"context_encoder", 0, "context-detached"},
                           Scaled{"temperature", 0, "temperature-detached"},
                           Scaled{"action_encoder", 1.0F / 3, "gather-averaged"},
                           Scaled{"temperature", 3, "temperature-reduced-twice"},
                           Scaled{"energy_head", 3, "unexplained"}}) {
    SCOPED_TRACE(it.group);
    const ToyFaults faults = on_local([&](ToyStep& step) { scale(step, it.group, it.factor); });
    EXPECT_EQ(cause_in(toy_config(), faults, "energy")->code, it.of_energy);
    EXPECT_EQ(cause_in(toy_config(), faults, "theirs")->code, "unexplained");
    EXPECT_EQ(cause_in(toy_config(), faults, "")->code, "unexplained");
  }
}

TEST_F(ForeignTrainer, WhatIsUnexplainedShowsFactorAndResidualAndRepeatsNothing) {
  const ToyFaults faults = on_local([](ToyStep& it) { scale(it, "energy_head", 3); });
  const Mechanism found = compared(toy_config(), faults, "theirs").mechanism;
  ASSERT_EQ(found.cause->code, "unexplained");
  EXPECT_THAT(found.cause->evidence, testing::HasSubstr("no known cause fits; local gradients: "));
  EXPECT_THAT(found.cause->evidence, testing::HasSubstr("3 (the world size) times the reference's, residual "));
  EXPECT_THAT(found.cause->evidence, testing::Not(testing::HasSubstr("expected ")))
      << "the first divergence's own sentence says it: " << found.sentence;
}

TEST_F(ForeignTrainer, APartOfAGroupIsNamedWhereItsRoleIsKnown) {
  const ToyFaults faults = on_local([](ToyStep& it) { scale(it, "energy_head.key", 3); });
  EXPECT_EQ(cause_in(toy_config(), faults, "energy")->code, "gradient-times-world");
  EXPECT_EQ(cause_in(toy_config(), faults, "theirs")->code, "unexplained");
}

TEST_F(ForeignTrainer, WhatScalesEveryGradientIsNamedForAnyTrainer) {
  const auto all = [](float factor) {
    return on_local([factor](ToyStep& it) { scale(it, "", factor); });
  };
  for (const char* trainer : {"energy", "theirs", ""}) {
    SCOPED_TRACE(trainer);
    EXPECT_EQ(cause_in(toy_config(), all(3), trainer)->code, "gradient-times-world");
    EXPECT_EQ(cause_in(toy_config(), all(1.0F / 3), trainer)->code, "gradient-over-world");
    EXPECT_EQ(cause_in(toy_config(), all(-1), trainer)->code, "sign-flipped");
  }
}

TEST_F(ForeignTrainer, ASecondTrainerHasItsOwnRolesAndRulesOrNone) {
  const ToyFaults detached = on_local([](ToyStep& it) { scale(it, "action", 0); });
  const ToyFaults part = on_local([](ToyStep& it) { scale(it, "energy_head.key", 3); });
  Comparison whole = compared(toy_config(), detached, "theirs");
  Comparison half = compared(toy_config(), part, "theirs");
  const TrainerSpec theirs{.name = "theirs", .help = ""};
  const auto named = [&](Comparison& comparison, const causes::TrainerRules* rules) {
    comparison.around->trainer = &theirs;
    comparison.around->rules = rules;
    return name_cause(*comparison.around)->code;
  };

  EXPECT_EQ(named(whole, nullptr), "unexplained");
  EXPECT_EQ(named(half, nullptr), "unexplained");

  static constexpr causes::TrainerRules kRolesAlone{
      .role_of = [](std::string_view) { return causes::Role{0}; }};
  EXPECT_EQ(named(whole, &kRolesAlone), "unexplained");
  EXPECT_EQ(named(half, &kRolesAlone), "gradient-times-world");

  static constexpr causes::Rule kRules[] = {
      [](const CauseInputs&) { return std::optional(causes::made("their-own", 0.9, "as planted")); }};
  static constexpr causes::TrainerRules kOwn{
      .rules = [](Phase phase) {
        return phase == Phase::local_gradients ? std::span<const causes::Rule>(kRules)
                                               : std::span<const causes::Rule>();
      }};
  EXPECT_EQ(named(whole, &kOwn), "their-own");
}

TEST_F(ForeignTrainer, TwoTrainersHaveNoRulesInCommon) {
  const ToyFaults faults = on_local([](ToyStep& it) { scale(it, "action", 0); });
  const Comparison mixed = compared(toy_config(), faults, "energy", "theirs");
  EXPECT_EQ(mixed.around->trainer, nullptr);
  EXPECT_EQ(mixed.mechanism.cause->code, "unexplained");
  const Comparison same = compared(toy_config(), faults, "energy");
  EXPECT_EQ(same.around->trainer, find_trainer_spec("energy"));
  EXPECT_EQ(same.mechanism.cause->code, "candidates-detached");
}

TEST_F(ForeignTrainer, TheEnergyTrainersTableKnowsEveryGroupOfItsModel) {
  const TrainerSpec* trainer = find_trainer_spec("energy");
  RunConfig config = toy_config();
  energy(config).negatives = Negatives::layer;
  const auto role_of = causes::trainer_rules("energy").role_of;
  const causes::Role unknown = role_of("no_such_group");
  std::set<causes::Role> roles;
  for (const ModelParameter& parameter : trainer->parameters(config, 3)) {
    const causes::Role role = role_of(parameter_group(parameter.name));
    EXPECT_NE(role, unknown) << parameter.name;
    roles.insert(role);
  }
  EXPECT_EQ(roles.size(), 5u);
  EXPECT_EQ(role_of("action_encoder2"), unknown);
}

TEST_F(ForeignTrainer, BuffersAreHeldToTheirOwnSizeWhereTheyAreNoMeansOfScores) {
  const auto grown = [](double factor) {
    return ToyFaults{nullptr, nullptr, nullptr, nullptr, [factor](ToyStep& it) {
                       for (support::ToyRank& rank : it.ranks) rank.buffer *= factor;
                     }};
  };
  for (const char* trainer : {"energy", "theirs"}) {
    const Comparison wrong = compared(toy_config(), grown(1.01), trainer);
    ASSERT_TRUE(wrong.mechanism.first_divergence.has_value()) << wrong.mechanism.sentence;
    EXPECT_EQ(wrong.mechanism.first_divergence->where, "buffer/energy_mean");
    const Comparison rounded = compared(toy_config(), grown(1 + 1e-6), trainer);
    EXPECT_FALSE(rounded.mechanism.first_divergence.has_value()) << rounded.mechanism.sentence;
  }
}

TEST(CausePages, StandFamilyByFamilyWithThoseOfEveryTrainer) {
  const std::span<const CausePage> pages = cause_pages();
  std::set<std::string_view> done;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (i > 0 && pages[i].family == pages[i - 1].family) continue;
    EXPECT_TRUE(done.insert(pages[i].family).second) << pages[i].family << " stands twice";
  }
  EXPECT_EQ(pages.front().family, "samples");
  EXPECT_EQ(pages.back().code, "unexplained");
  for (const std::string& code : energy_codes()) EXPECT_NE(find_cause_page(code), nullptr) << code;
}

}  // namespace
}  // namespace lockstep
