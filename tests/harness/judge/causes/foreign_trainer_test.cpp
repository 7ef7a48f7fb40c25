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
#include "harness/judge/evidence/replays.h"
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

// Losses that ranks make of rows, told from what the function gives for single rows and pairs.

namespace lockstep {
namespace {

using Ids = std::vector<int64_t>;
using LossOf = std::function<double(const Ids&)>;

const Ids kBatch = {7, 3, 11, 5, 2, 13, 17, 19};

const std::vector<Ids> kUnequal = {{7, 3, 11}, {5, 2, 13, 17, 19}}, kEqual = {{7, 3, 11, 5}, {2, 13, 17, 19}};

std::vector<Ids> rows_by_rank = kUnequal;

/// Row i loses this, and counts that many tokens.
double loss_of_row(int64_t id) { return 1 + std::sin(static_cast<double>(id)); }

double tokens_of(int64_t id) { return static_cast<double>(std::min<int64_t>(id % 7 + 1, 5)); }

double weighted_sum(const Ids& ids) {
  double sum = 0;
  for (const int64_t id : ids) sum += tokens_of(id) * loss_of_row(id);
  return sum;
}

double tokens(const Ids& ids) {
  double sum = 0;
  for (const int64_t id : ids) sum += tokens_of(id);
  return sum;
}

double mean_by_tokens(const Ids& ids) { return weighted_sum(ids) / tokens(ids); }

double mean_by_rows(const Ids& ids) {
  double sum = 0;
  for (const int64_t id : ids) sum += loss_of_row(id);
  return sum / static_cast<double>(ids.size());
}

/// A loss that contrasts rows: of one row it is 0.
double contrastive(const Ids& ids) {
  double sum = 0;
  for (const int64_t row : ids) {
    double all = 0;
    for (const int64_t column : ids) all += std::exp(std::cos(static_cast<double>(row * column)) - (row == column ? 0 : 1));
    sum += std::log(all) - std::cos(static_cast<double>(row * row));
  }
  return sum / static_cast<double>(ids.size());
}

/// What rows lose depends on the deviation of all.
double normalised(const Ids& ids) {
  const double mean = mean_by_rows(ids);
  double squares = 0;
  for (const int64_t id : ids) squares += std::pow(loss_of_row(id) - mean, 2);
  return mean + std::sqrt(squares / static_cast<double>(ids.size()));
}

Measured measured(const LossOf& loss, double own) {
  Measured found{.own = own, .together = loss(kBatch), .singles = {}, .first = kBatch.front(), .pairs = {}, .epsilon = 2.2e-16};
  for (const int64_t id : kBatch) {
    found.singles[id] = loss({id});
    if (id != kBatch.front()) found.pairs[id] = loss({kBatch.front(), id});
  }
  return found;
}

/// All rows lose the same where the gradient alone is told.
bool as_gradient = false;

MeasuredRows in_channel(const Ids& own, const Measured& measured_rows) {
  if (!as_gradient) return {.own_ids = own, .loss = measured_rows, .slope = {}};
  return {.own_ids = own, .loss = measured([](const Ids&) { return 0.7; }, 0.7), .slope = measured_rows};
}

/// The cause for ranks that hold rows_by_rank and have lost this of them, with that function.
Cause cause_of(const LossOf& reference, const LossOf& cell, const std::function<double(std::size_t)>& own, Phase phase = Phase::loss, int64_t micro_steps = 1,
               const LossOf& of_rank_1 = {}) {
  CauseInputs inputs;
  inputs.difference.phase = phase;
  inputs.difference.divergence.step = 0;
  inputs.cell_facts.accumulation = micro_steps;
  inputs.rows = RowsApart{.step = 0, .reference = {in_channel(kBatch, measured(reference, reference(kBatch)))}, .cell = {}};
  for (std::size_t rank = 0; rank < rows_by_rank.size(); ++rank) inputs.rows->cell.push_back(in_channel(rows_by_rank[rank], measured(rank == 1 && of_rank_1 ? of_rank_1 : cell, own(rank))));
  return *name_cause(inputs);
}

std::string code_of(const LossOf& reference, const LossOf& cell, const std::function<double(std::size_t)>& own, Phase phase = Phase::loss, int64_t micro_steps = 1) {
  return cause_of(reference, cell, own, phase, micro_steps).code;
}

double by_world(std::size_t rank) { return 2 * weighted_sum(rows_by_rank[rank]) / tokens(kBatch); }

TEST(RowsApart, TellsWeightsOfRowsFromPairs) {
  const TakenApart apart = taken_apart(measured(mean_by_tokens, 0));
  ASSERT_TRUE(apart.rows);
  EXPECT_FALSE(apart.is_coupled);
  EXPECT_FALSE(apart.rows->is_sum);
  for (const int64_t id : kBatch) EXPECT_NEAR(apart.rows->rows.at(id).weight, tokens_of(id) / tokens_of(kBatch.front()), 1e-9) << id;
}

TEST(RowsApart, TellsASum) {
  const TakenApart apart = taken_apart(measured([](const Ids& ids) { return weighted_sum(ids) / 24; }, 0));
  ASSERT_TRUE(apart.rows);
  EXPECT_TRUE(apart.rows->is_sum);
}

TEST(RowsApart, TellsThatRowsAreCoupled) {
  for (const LossOf& loss : {LossOf(contrastive), LossOf(normalised)}) {
    const TakenApart apart = taken_apart(measured(loss, 0));
    EXPECT_FALSE(apart.rows);
    EXPECT_TRUE(apart.is_coupled);
  }
}

TEST(RowsApart, ClaimsNothingOfRowsThatAllLoseTheSame) {
  const TakenApart apart = taken_apart(measured([](const Ids&) { return 0.7; }, 0));
  EXPECT_FALSE(apart.rows);
  EXPECT_FALSE(apart.is_coupled);
}

TEST(RowsApart, ClaimsNothingOfAFunctionThatTakesNoSingleRow) {
  Measured rows = measured(contrastive, 0);
  rows.singles.clear();
  rows.pairs.clear();
  const TakenApart apart = taken_apart(rows);
  EXPECT_FALSE(apart.rows);
  EXPECT_FALSE(apart.is_coupled);
}

TEST(RowsApart, NameAMeanOfMeans) {
  const auto own_mean = [](std::size_t rank) { return mean_by_tokens(rows_by_rank[rank]); };
  for (const Phase phase : {Phase::loss, Phase::local_gradients, Phase::reduced_gradients}) {
    EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, own_mean, phase), "mean-of-means");
  }
  // The reference divides by a constant, the ranks by their own numbers of rows, and they are summed.
  const LossOf over_all = [](const Ids& ids) { return mean_by_rows(ids) * static_cast<double>(ids.size()) / 8; };
  EXPECT_EQ(code_of(over_all, mean_by_rows, [](std::size_t rank) { return mean_by_rows(rows_by_rank[rank]) / 2; }), "mean-of-means");
}

TEST(RowsApart, AreToldFromGradientsWhereAllRowsLoseTheSame) {
  as_gradient = true;
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t rank) { return mean_by_tokens(rows_by_rank[rank]); }), "mean-of-means");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, by_world), "unexplained");
  // Gradients that the function has reduced itself are not the ranks' own.
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t) { return mean_by_tokens(rows_by_rank[0]); }), "unexplained");
  as_gradient = false;
}

TEST(RowsApart, AreSilentWhereRanksCountRowsAlike) {
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, by_world), "unexplained");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t rank) { return 3 * by_world(rank); }), "unexplained");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [](std::size_t rank) { return mean_by_tokens(rows_by_rank[rank]) * (rank == 1 ? 1.01 : 1); }), "unexplained");
}

TEST(RowsApart, NameMicroStepsThatCountAlike) {
  const auto sum_of_means = [](std::size_t rank) {
    const Ids& ids = rows_by_rank[rank];
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(ids.size() / 2);
    return mean_by_tokens({ids.begin(), middle}) + mean_by_tokens({middle, ids.end()});
  };
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, [&](std::size_t rank) { return sum_of_means(rank) / 2; }, Phase::loss, 2), "micro-steps-weighted-alike");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, sum_of_means, Phase::loss, 2), "accumulation-not-scaled");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, by_world, Phase::loss, 2), "unexplained");
}

TEST(RowsApart, NameRowsThatAreLeftOut) {
  const auto without_last_of = [](std::size_t wrong) {
    return [=](std::size_t rank) {
      const Ids& ids = rows_by_rank[rank];
      return rank == wrong ? 2 * weighted_sum({ids.begin(), ids.end() - 1}) / tokens(kBatch) : by_world(rank);
    };
  };
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, without_last_of(1)), "rows-left-out");
  EXPECT_EQ(code_of(mean_by_tokens, mean_by_tokens, without_last_of(2)), "unexplained");
}

TEST(RowsApart, NameWhatIsTakenOverOwnRows) {
  // Ranks that hold more rows and do not count more look alike.
  EXPECT_EQ(code_of(normalised, normalised, [](std::size_t rank) { return normalised(rows_by_rank[rank]); }), "unexplained");
  rows_by_rank = kEqual;
  EXPECT_EQ(code_of(contrastive, contrastive, [](std::size_t rank) { return contrastive(rows_by_rank[rank]); }), "local-negatives");
  EXPECT_EQ(code_of(normalised, normalised, [](std::size_t rank) { return normalised(rows_by_rank[rank]); }), "local-statistics");
  const LossOf twice = [](const Ids& ids) { return 2 * normalised(ids); };
  EXPECT_EQ(code_of(normalised, twice, [&](std::size_t rank) { return twice(rows_by_rank[rank]); }), "local-statistics");
  rows_by_rank = kUnequal;
}

TEST(RowsApart, AreSilentOfACoupledLossThatIsRightOrOtherwiseWrong) {
  EXPECT_EQ(code_of(normalised, normalised, [](std::size_t) { return normalised(kBatch); }), "unexplained");
  // Of equal rows on all ranks a gather has each candidate twice.
  const LossOf gathered = [](const Ids& ids) { return contrastive(ids) + std::log(2.0); };
  EXPECT_EQ(code_of(contrastive, gathered, [](std::size_t rank) { return contrastive(rows_by_rank[rank]); }), "unexplained");
}

TEST(RowsApart, TellWhoseFunctionIsAnother) {
  const LossOf other = [](const Ids& ids) { return mean_by_tokens(ids) + 0.1; };
  const auto own = [](std::size_t rank) { return 1.5 * by_world(rank) + static_cast<double>(rank); };
  const Cause cause = cause_of(mean_by_tokens, mean_by_tokens, own, Phase::loss, 1, other);
  EXPECT_EQ(cause.code, "unexplained");
  EXPECT_NE(cause.evidence.find("and another one on rank 1"), std::string::npos) << cause.evidence;
  // Nothing is known of gradients.
  EXPECT_EQ(cause_of(mean_by_tokens, mean_by_tokens, own).evidence.find("of the same rows"), std::string::npos);
  EXPECT_NE(cause_of(mean_by_tokens, other, own).evidence.find("every rank's function gives another loss"), std::string::npos);
}

TEST(RowsApart, NameAMaskThatIsIgnored) {
  // Rows of 5 tokens are whole.
  const LossOf unmasked = [](const Ids& ids) {
    double sum = 0;
    for (const int64_t id : ids) sum += loss_of_row(id) + (5 - tokens_of(id)) * 0.3;
    return sum / static_cast<double>(ids.size());
  };
  const auto own = [&](std::size_t rank) { return unmasked(rows_by_rank[rank]); };
  EXPECT_EQ(code_of(mean_by_tokens, unmasked, own), "mask-ignored");
  // The sum has the padding too, and the divisor has not.
  const LossOf unmasked_sum = [](const Ids& ids) {
    double sum = 0;
    for (const int64_t id : ids) sum += tokens_of(id) * loss_of_row(id) + (5 - tokens_of(id)) * 0.3;
    return sum / tokens(ids);
  };
  EXPECT_EQ(code_of(mean_by_tokens, unmasked_sum, own), "mask-ignored");
  const LossOf other = [&](const Ids& ids) { return unmasked(ids) + 0.1; };
  EXPECT_EQ(code_of(mean_by_tokens, other, own), "unexplained");
}

}  // namespace
}  // namespace lockstep
