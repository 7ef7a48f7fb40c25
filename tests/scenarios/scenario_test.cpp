#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/cells.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/step.h"
#include "losses/loss.h"
#include "scenarios/energy/energy_step.h"
#include "scenarios/energy/model.h"
#include "scenarios/energy/spec.h"
#include "scenarios/energy/task.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/table.h"
#include "scenarios/scenario.h"
#include "tests/support/certificate.h"

namespace lockstep {
namespace {

template <typename Entries>
std::set<std::string> names(const Entries& entries) {
  std::set<std::string> result;
  for (const auto& entry : entries) {
    result.insert(std::string(entry.name));
  }
  return result;
}

TEST(Tables, EqualTheTorchFreeCatalogue) {
  std::set<std::string> own = names(catalogue_scenarios());
  // What a command trains is a program of the user's.
  std::erase_if(own, [](const std::string& name) { return find_trainer_spec(name)->is_command(); });
  EXPECT_EQ(names(scenarios()), own);
  EXPECT_EQ(names(losses()), names(catalogue_losses()));
}

TEST(Tables, ABugThatNamesNoParameterActsOnOneThatTheTrainerHas) {
  for (const TrainerSpec* spec : trainer_specs()) {
    if (spec->is_command()) continue;
    std::set<std::string> names;
    for (const ModelParameter& parameter : spec->parameters(RunConfig(*spec), 6)) names.insert(parameter.name);
    EXPECT_TRUE(names.contains(std::string(spec->usual_parameter))) << spec->name;
  }
}

TEST(MutantRow, IsDataAndCodeAndNamesTheTrainerThatItReachesInto) {
  EXPECT_FALSE((std::is_constructible_v<MutantRow, MutantEntry>));
  EXPECT_FALSE((std::is_constructible_v<MutantRow, MutantCode>));
  EXPECT_FALSE(std::is_default_constructible_v<MutantRow>);
  const MutantCode inside = LOCKSTEP_BUG(PlantedInEnergy, ), outside = LOCKSTEP_BUG(Planted, );
  const auto of = [](std::string_view trainer) {
    return MutantEntry{.name = "x", .trainer = trainer, .help = "y"};
  };
  EXPECT_THROW(MutantRow(of(""), inside), std::invalid_argument);
  EXPECT_THROW(MutantRow(of("other"), inside), std::invalid_argument);
  EXPECT_NO_THROW(MutantRow(of("energy"), inside));
  EXPECT_NO_THROW(MutantRow(of(""), outside));
}

TEST(FlipBit, FlipsTheBitOfTheSameMeaningInEitherPrecision) {
  RunConfig config;
  config.mutant.name = "flip_bit";
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const auto& [bit, value] : {std::pair{31, -1.0}, {22, 1.5}, {23, 0.5}}) {
      config.mutant.bit = bit;
      const at::Tensor ones = at::ones({2}, type);
      const at::Tensor flipped = make_mutant(config, 0)->local_gradient(0, "energy_head.key.weight", ones);
      EXPECT_EQ(flipped[0].item<double>(), value) << "bit " << bit << " of " << type;
      EXPECT_EQ(flipped[1].item<double>(), 1) << "bit " << bit << " of " << type;
    }
  }
}

TEST(Tables, RefuseUnknownNames) {
  EXPECT_THROW(make_scenario("enery"), std::invalid_argument);
  RunConfig config;
  config.mutant.name = "flip";
  EXPECT_THROW(make_mutant(config, 0), std::invalid_argument);
}

EnergyModel model() { return {{16, 6, 8, 32, 64}, 0.5, 3}; }

at::Tensor wave(at::IntArrayRef shape) {
  return at::arange(c10::multiply_integers(shape), at::kFloat).mul(0.37).sin().reshape(shape);
}

TEST(EnergyModel, ItsParametersAreThoseThatThePlannerKnows) {
  for (const int64_t action_layers : {0, 3}) {
    RunConfig config;
    EnergyConfig& own = energy(config);
    own.negatives = action_layers == 0 ? Negatives::global : Negatives::layer;
    own.model = {8, 16, static_cast<int>(std::max<int64_t>(action_layers, 1))};
    EnergyModel model({own.data.context_steps, 5, own.data.action_steps, 8, 16, action_layers}, 0.5, 3);
    support::expect_parameters(model.parameters(), spec_of(config).parameters(config, 5));
  }
}

TEST(EnergyModel, MaskedStepsDoNotMatter) {
  const EnergyModel energy = model();
  at::Tensor mask = at::ones({2, 16}, at::kBool);
  mask[0].narrow(0, 0, 5).fill_(false);
  const at::Tensor action = energy.encode_action(wave({3, 48}));
  at::Tensor context = wave({2, 16, 6}).clone();
  const at::Tensor before = energy.head(energy.encode_context(context, mask), action, {});
  context[0].narrow(0, 0, 5).fill_(1e6);
  EXPECT_TRUE(at::equal(before, energy.head(energy.encode_context(context, mask), action, {})));
  context[0].narrow(0, 5, 1).fill_(3.0);
  EXPECT_FALSE(at::equal(before, energy.head(energy.encode_context(context, mask), action, {})));
}

TEST(EnergyModel, DoesNotFactorise) {
  // A sum f(h) + g(a) has the second difference E11 - E12 - E21 + E22 = 0.
  const EnergyModel energy = model();
  const at::Tensor e = energy.head(energy.encode_context(wave({2, 16, 6}), at::ones({2, 16}, at::kBool)),
                                   energy.encode_action(wave({2, 48})), {});
  EXPECT_GT(std::abs((e[0][0] - e[0][1] - e[1][0] + e[1][1]).item<double>()), 1e-4);
}

TEST(EnergyModel, ScoresOfAnEvaluationAreTheHeadsEnergies) {
  const c10::NoGradGuard no_grad;
  const EnergyModel energy({16, 6, 8, 32, 64}, 0.5, 7, at::kDouble);
  at::Tensor mask = at::ones({5, 16}, at::kBool);
  mask[1].narrow(0, 0, 7).fill_(false);
  const EncodedContext context = energy.encode_context(wave({5, 16, 6}), mask);
  const at::Tensor head = energy.head(context, energy.encode_action(wave({9, 48})), {});
  const at::Tensor scores = energy.scores(context, energy.encode_candidates(wave({9, 48})));
  EXPECT_GT(head.std().item<double>(), 1e-3) << "else this test shows nothing";
  EXPECT_LT((scores - head).abs().max().item<double>(), 1e-14);
}

TEST(EnergyModel, EveryParameterGetsAGradient) {
  EnergyModel energy = model();
  const at::Tensor e = energy.head(energy.encode_context(wave({3, 16, 6}), at::ones({3, 16}, at::kBool)),
                                   energy.encode_action(wave({4, 48})), {});
  (e / energy.temperature()).square().sum().backward();
  for (std::size_t i = 0; i < energy.parameters().tensors.size(); ++i) {
    ASSERT_TRUE(energy.parameters().tensors[i].grad().defined()) << energy.parameters().names[i];
    EXPECT_GT(energy.parameters().tensors[i].grad().abs().sum().item<double>(), 0)
        << energy.parameters().names[i];
  }
}

TEST(EnergyModel, TheSameSeedGivesTheSameWeights) {
  EnergyModel a = model();
  EnergyModel b = model();
  EnergyModel other({16, 6, 8, 32, 64}, 0.5, 4);
  for (std::size_t i = 0; i < a.parameters().tensors.size(); ++i) {
    EXPECT_TRUE(at::equal(a.parameters().tensors[i], b.parameters().tensors[i]));
  }
  EXPECT_FALSE(at::equal(a.parameters().tensors[0], other.parameters().tensors[0]));
}

TEST(Retrieval, AConstantEnergyIsAtChance) {
  EnergyModel energy = model();
  const c10::NoGradGuard no_grad;
  for (at::Tensor& parameter : energy.parameters().tensors) {
    parameter.detach().zero_();
  }
  const PairTensors pairs{wave({96, 16, 6}), at::ones({96, 16}, at::kBool), wave({96, 48})};
  std::map<std::string, double> metrics;
  add_retrieval(energy, pairs, 24, 3.0, metrics);
  EXPECT_NEAR(metrics.at("cross_entropy_24"), std::log(24.0), 1e-12);
  EXPECT_NEAR(metrics.at("cross_entropy_24_fitted"), std::log(24.0), 1e-12);
  EXPECT_EQ(metrics.at("accuracy_24"), 0.0) << "ties count against the row";
}

TEST(Retrieval, AFittedTemperatureIsNoWorseOnThePairsItWasFittedOn) {
  const EnergyModel energy = model();
  const PairTensors pairs{wave({96, 16, 6}), at::ones({96, 16}, at::kBool), wave({96, 48})};
  const double tau = fitted_temperature(energy, pairs);
  ASSERT_GT(tau, 0.0);
  std::map<std::string, double> metrics;
  add_retrieval(energy, pairs, 24, tau, metrics);
  EXPECT_LE(metrics.at("cross_entropy_24_fitted"), metrics.at("cross_entropy_24") + 1e-9);
  const double fitted = metrics.at("cross_entropy_24_fitted");
  for (const double other : {1e-3 * tau, 0.1 * tau, 10 * tau}) {
    add_retrieval(energy, pairs, 24, other, metrics);
    EXPECT_LE(fitted, metrics.at("cross_entropy_24_fitted") + 1e-6) << other;
  }
  add_retrieval(energy, pairs, 24, 1e-3, metrics);
  EXPECT_GT(metrics.at("cross_entropy_24_fitted"), fitted + 0.01) << "a wrong temperature must show";
}

TEST(Retrieval, APermutedContextGivesAShortcutAway) {
  const PairTensors pairs{wave({96, 16, 6}), at::ones({96, 16}, at::kBool), wave({96, 48})};
  std::map<std::string, double> metrics;
  const EnergyModel energy = model();
  add_retrieval(energy, pairs, 24, 0, metrics);
  add_shortcut_control(energy, pairs, 24, metrics);
  EXPECT_LE(metrics.at("accuracy_24_permuted_context"), 3.0 / 24);
  // An energy that does not look at the context: its accuracy stays what it was.
  EnergyModel blind = model();
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < blind.parameters().names.size(); ++i) {
    if (blind.parameters().names[i].starts_with("context_encoder")) {
      blind.parameters().tensors[i].detach().zero_();
    }
  }
  add_retrieval(blind, pairs, 24, 0, metrics);
  add_shortcut_control(blind, pairs, 24, metrics);
  EXPECT_EQ(metrics.at("accuracy_24_permuted_context"), metrics.at("accuracy_24"));
}

TEST(EnergyTask, PartsOfABatchAddUpToTheWhole) {
  RunConfig config;
  config.data.source = DataSource::synthetic;
  config.layout = {1, 12};
  const std::unique_ptr<Scenario> scenario = make_scenario("energy");
  scenario->prepare(config);
  const std::vector<int64_t> ids{5, 3, 8, 21, 13, 1, 34, 2, 55, 89, 4, 7};
  support::Alone task(*scenario, config);
  const at::Tensor whole = task.gradient(ids, 12);
  EXPECT_LT((task.gradient(ids, 3) - whole).norm().item<double>(), 1e-5 * whole.norm().item<double>());
}

// The energy head that takes its rows in parts against the head of all rows at once.

constexpr int64_t kRows = 140, kCandidates = 150;

struct Pass {
  at::Tensor energies;
  std::vector<at::Tensor> gradients;
};

double most_apart(const Pass& a, const Pass& b) {
  double most = (a.energies - b.energies).abs().max().item<double>();
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    most = std::max(most, ((a.gradients[i] - b.gradients[i]).norm() / (b.gradients[i].norm() + 1e-12)).item<double>());
  }
  return most;
}

class Parts : public testing::Test {
 protected:
  /// `first`: the gradient reaches rows from there on alone. `whole`: of the model itself, which knows no parts.
  Pass pass(bool whole, int64_t first = 0) {
    const EnergyShape shape;
    EnergyModel model(shape, 0.5, 7, at::kDouble);
    const auto wave = [](at::IntArrayRef sizes, double pace) {
      return at::arange(c10::multiply_integers(sizes), at::kDouble).mul(pace).sin().reshape(sizes);
    };
    const EncodedContext context = model.encode_context(wave({kRows, shape.context_steps, shape.channels}, 0.37),
                                                        at::ones({kRows, shape.context_steps}, at::kBool));
    const at::Tensor action = model.encode_action(wave({kCandidates, shape.action_steps * shape.channels}, 0.73));
    const at::Tensor factors = wave({kRows, kCandidates, shape.hidden}, 0.11) + 1;
    const auto drawn = [&](int64_t from, int64_t rows, bool) { return factors.narrow(0, from, rows); };
    RunConfig config(energy_spec());
    config.precision = Precision::float64;
    Pass result;
    result.energies = whole ? model.head(context, action, factors) : StepModel(config, model, false).head(context, action, false, drawn);
    const at::Tensor weights = wave({kRows, kCandidates}, 0.05);
    (result.energies * weights).narrow(0, first, kRows - first).sum().backward();
    for (const at::Tensor& parameter : model.parameters().tensors) {
      if (parameter.grad().defined()) result.gradients.push_back(parameter.grad().clone());
    }
    result.energies = result.energies.detach();
    return result;
  }
};

TEST_F(Parts, AreTakenOfWhatWouldKeepTooMuchAlone) {
  const EnergyShape shape;
  const int64_t of_pair = numbers_of_pair(shape.width, shape.hidden, shape.context_steps);
  EXPECT_LT(rows_at_once(kRows, kCandidates, of_pair), kRows) << "else this test shows nothing";
  EXPECT_EQ(rows_at_once(96, 96, of_pair), 96);
  EXPECT_EQ(rows_at_once(24, 24, numbers_of_pair(512, 1024, 16)), 24);
  EXPECT_EQ(rows_at_once(4096, int64_t{1} << 30, of_pair), 1);
}

TEST_F(Parts, MeanWhatTheWholeMeansAndRestWhereNoGradientReachesThem) {
  for (const int64_t first : {0, 100}) {
    const Pass whole = pass(true, first), parts = pass(false, first);
    ASSERT_EQ(parts.gradients.size(), whole.gradients.size());
    EXPECT_LT(most_apart(parts, whole), 1e-12);
  }
}

TEST_F(Parts, GiveTheSameBitsEachTime) {
  EXPECT_EQ(most_apart(pass(false), pass(false)), 0);
}

// Every loss in every partitioning of rows, in float64 on emulated ranks, against the plain reference in one
// process.

using support::of_ranks;
using support::of_reference;
using support::small_config;
using support::StepGradients;
using support::StepSetting;
using support::worst_error;

// Twelve rows, of which two samples come again.
const std::vector<int64_t> kRepeatedIds{5, 3, 8, 21, 13, 1, 5, 2, 34, 3, 4, 5};

// Sixteen, for eight ranks of two.
const std::vector<int64_t> kMoreIds{5, 3, 8, 21, 13, 1, 5, 2, 34, 3, 4, 5, 40, 17, 6, 9};

class Certificate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scenario_ = make_scenario("energy").release();
    scenario_->prepare(small_config(1, 12));
  }
  static void TearDownTestSuite() {
    delete scenario_;
    scenario_ = nullptr;
  }

  static void expect_exact(const RunConfig& config, const std::string& what,
                           const std::vector<at::Tensor>& parameters = {}) {
    const std::vector<int64_t>& ids = config.layout.global_batch() == 16 ? kMoreIds : kRepeatedIds;
    support::expect_exact(*scenario_, config, {ids, 3, parameters}, what);
  }

  static std::string words(const RunConfig& config) {
    return energy(config).loss + ", world " + std::to_string(config.layout.world_size) + ", partition " +
           std::to_string(static_cast<int>(config.rows)) + ", negatives " +
           std::to_string(static_cast<int>(energy(config).negatives));
  }

  static Scenario* scenario_;
};

Scenario* Certificate::scenario_ = nullptr;

TEST_F(Certificate, EveryLossAtEveryWorldSizeAndPartitioningOfRows) {
  std::vector<RunConfig> configs = support::partitioned(small_config(1, 12), {1, 2, 3, 4});
  std::ranges::copy(support::partitioned(small_config(1, 16), {8}), std::back_inserter(configs));
  for (RunConfig& config : configs) {
    for (const LossEntry& loss : losses()) {
      energy(config).loss = loss.name;
      for (const Negatives negatives : {Negatives::global, Negatives::local}) {
        energy(config).negatives = negatives;
        expect_exact(config, words(config));
      }
    }
  }
}

TEST_F(Certificate, RowsThatDoNotCountAndDuplicatesAndTilesAndMicroSteps) {
  for (const LossEntry& loss : losses()) {
    RunConfig config = small_config(3, 4);
    energy(config).loss = loss.name;
    config.rows = RowPartition::unequal;
    const std::string name(loss.name);
    energy(config).invalid_rows = 0.4;
    expect_exact(config, name + ", invalid rows");
    energy(config).mask_duplicates = true;
    expect_exact(config, name + ", invalid rows, duplicates masked");
    energy(config).tile_columns = 5;
    expect_exact(config, name + ", in tiles too");
    config.accumulation = 2;
    expect_exact(config, name + ", in two micro-steps too");
    energy(config).negatives = Negatives::local;
    energy(config).tile_columns = 2;
    expect_exact(config, name + ", local too");
    energy(config).dropout = 0;
    energy(config).context_noise = 0;
    expect_exact(config, name + ", without noise");
    energy(config).invalid_rows = 0.999999;
    expect_exact(config, name + ", no row counts");
  }
}

TEST_F(Certificate, HoldsAfterTraining) {
  for (const LossEntry& loss : losses()) {
    RunConfig config = small_config(4, 3);
    energy(config).loss = loss.name;
    config.rows = RowPartition::one_empty;
    energy(config).temperature = 0.1;
    expect_exact(config, std::string(loss.name), support::trained(*scenario_, config, kRepeatedIds, 30));
  }
}

TEST_F(Certificate, ExplicitNegatives) {
  for (const Negatives negatives : {Negatives::layer, Negatives::mixed, Negatives::adaptive}) {
    for (RunConfig& config : support::partitioned(small_config(1, 12), {3})) {
      energy(config).negatives = negatives;
      expect_exact(config, words(config));
      energy(config).invalid_rows = 0.4;
      energy(config).mask_duplicates = true;
      energy(config).tile_columns = 5;
      energy(config).layer.count = 11;
      config.accumulation = 2;
      expect_exact(config, words(config) + ", masked, in tiles, in micro-steps");
    }
  }
}

TEST_F(Certificate, AWrongNormaliserIsNotExact) {
  RunConfig config = small_config(3, 4);
  config.rows = RowPartition::unequal;
  const StepSetting setting{kRepeatedIds};
  const StepGradients reference = of_reference(*scenario_, config, setting);
  energy(config).invalid_rows = 0.2;
  EXPECT_GT(worst_error(of_ranks(*scenario_, config, setting), reference), 1e-3);
  energy(config).invalid_rows = 0;
  energy(config).negatives = Negatives::local;
  EXPECT_GT(worst_error(of_ranks(*scenario_, config, setting), reference), 1e-3);
}

const std::vector<int64_t> kIds{5, 3, 8, 21, 13, 1, 55, 2, 34, 11, 4, 7};

TEST(NegativeLayers, AreEachOnceAndInRange) {
  LayerNegativesConfig config;
  EXPECT_EQ(negative_layers(config, 12), (std::vector<int64_t>{0, 4, 6, 10}));
  EXPECT_EQ(negative_layers(config, 6), (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_EQ(negative_layers(config, 3), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(negative_layers(config, 1), (std::vector<int64_t>{0}));
  config.as_written = true;
  EXPECT_EQ(negative_layers(config, 3), (std::vector<int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(negative_layers(config, 1), (std::vector<int64_t>{0, 0, 0, 0})) << "-1 is the last one";
  config.layers = {2, 5};
  EXPECT_EQ(negative_layers(config, 6), (std::vector<int64_t>{2, 5}));
}

TEST(KeyedShuffle, IsAPermutationAndNeverTheIdentity) {
  for (uint64_t key = 0; key < 200; ++key) {
    for (const int64_t n : {2, 3, 8}) {
      std::vector<int64_t> order = keyed_shuffle(key, n);
      EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
      }
    }
  }
  EXPECT_EQ(keyed_shuffle(3, 1), std::vector<int64_t>{0});
}

struct Made {
  at::Tensor own, candidates;
  std::vector<at::Tensor> predictions;
  std::vector<StreamUse> streams;
};

Made made(const RunConfig& config, const std::vector<int64_t>& ids, int rank = 0, int64_t steps = 8) {
  const RandomStreams streams(config.rank_seed, config.seed, rank);
  ExplicitNegatives negatives(config, {streams, 4, ids, 0, steps});
  Made result;
  for (const int64_t id : ids) {
    result.predictions.push_back(at::full({48}, static_cast<double>(id), at::kDouble));
  }
  result.own = at::sin(at::stack(result.predictions) + at::arange(48, at::kDouble));
  result.predictions.clear();
  for (int64_t layer = 0; layer < energy(config).model.action_layers; ++layer) {
    result.predictions.push_back((result.own * 0.1 + static_cast<double>(100 * layer)).requires_grad_(true));
  }
  result.candidates = negatives.candidates(result.own, result.predictions);
  result.streams = negatives.streams();
  return result;
}

TEST(ExplicitNegatives, AreMadeInTheOrderThatWasTold) {
  RunConfig config;
  energy(config).layer.count = 10;
  const Made of = made(config, kIds);
  EXPECT_EQ(of.candidates.sizes(), (std::vector<int64_t>{12, 10, 48}));
  const std::vector<int64_t> layers{0, 2, 3, 4};
  for (int64_t k = 0; k < 4; ++k) {
    EXPECT_TRUE(at::equal(of.candidates.select(1, k),
                          of.predictions[static_cast<std::size_t>(layers[static_cast<std::size_t>(k)])]));
  }
  const std::vector<double> sigma{0.1, 0.2, 0.4, 0.0, 0.3, 0.4};
  for (int64_t k = 0; k < 6; ++k) {
    const double spread = (of.candidates.select(1, 4 + k) - of.own).square().mean().sqrt().item<double>();
    if (k != 3) {
      EXPECT_NEAR(spread, sigma[static_cast<std::size_t>(k)], 0.06 * sigma[static_cast<std::size_t>(k)]) << k;
    }
  }
  const at::Tensor shuffled = of.candidates.select(1, 7).reshape({12, 8, 6});
  const at::Tensor own = of.own.reshape({12, 8, 6});
  EXPECT_TRUE(at::equal(std::get<0>(shuffled.select(2, 0).sort(1)), std::get<0>(own.select(2, 0).sort(1))));
  for (int64_t row = 0; row < 12; ++row) {
    EXPECT_FALSE(at::equal(shuffled[row], own[row])) << row;
  }
  ASSERT_EQ(of.streams.size(), 2U);
  EXPECT_EQ(of.streams[0].name, "negative_noise");
  EXPECT_EQ(of.streams[1].name, "negative_shuffle");
}

TEST(ExplicitNegatives, KeepTheFirstAndAnActionOfOneStepHasNoShuffle) {
  RunConfig config;
  energy(config).layer.count = 2;
  EXPECT_EQ(made(config, kIds).candidates.size(1), 2);
  energy(config).layer.count = 8;
  const Made of = made(config, kIds, 0, 1);
  EXPECT_EQ(of.candidates.size(1), 8);
  EXPECT_EQ(of.streams.size(), 1U);
}

TEST(ExplicitNegatives, FollowTheSampleWhateverRankAndRow) {
  RunConfig config;
  const Made whole = made(config, kIds);
  const Made part = made(config, {21, 8}, 5);
  EXPECT_TRUE(at::allclose(part.candidates[0], whole.candidates[3], 0, 1e-15));
  EXPECT_TRUE(at::allclose(part.candidates[1], whole.candidates[2], 0, 1e-15));
  EXPECT_FALSE(whole.candidates.requires_grad());
}

TEST(ExplicitNegatives, AsWrittenAreAttachedAndDrawTheSameOnAllRanks) {
  RunConfig config;
  energy(config).layer.as_written = true;
  const Made one = made(config, {21, 8}, 0);
  const Made other = made(config, {34, 2}, 5);
  EXPECT_TRUE(one.candidates.requires_grad());
  EXPECT_TRUE(at::allclose(one.candidates.select(1, 5) - one.own, other.candidates.select(1, 5) - other.own,
                           0, 1e-12));
  EXPECT_EQ(one.streams[0].fingerprint, other.streams[0].fingerprint);
  EXPECT_EQ(one.streams[1].fingerprint, other.streams[1].fingerprint);
  EXPECT_NE(made(RunConfig{}, {21, 8}, 0).streams[1].fingerprint,
            made(RunConfig{}, {34, 2}, 5).streams[1].fingerprint);
}

class ExplicitLoss : public ::testing::Test {
 protected:
  void SetUp() override {
    scenario_ = make_scenario("energy");
    scenario_->prepare(small_config(1, 12));
  }
  std::unique_ptr<Scenario> scenario_;
};

TEST_F(ExplicitLoss, TheActionHeadLearnsFromItsErrorAlone) {
  // With detached predictions the action head's gradient is the squared error's; undetached ones pull at it.
  RunConfig config = small_config(3, 4);
  energy(config).negatives = Negatives::layer;
  const StepGradients detached = of_ranks(*scenario_, config, {kIds});
  energy(config).temperature = 0.3;
  const StepGradients colder = of_ranks(*scenario_, config, {kIds});
  EXPECT_TRUE(at::equal(detached.by_group.at("action_head"), colder.by_group.at("action_head")))
      << "the loss of the energies does not reach it";
  energy(config).layer.as_written = true;
  const StepGradients attached = of_ranks(*scenario_, config, {kIds});
  EXPECT_GT((attached.by_group.at("action_head") - colder.by_group.at("action_head")).norm().item<double>(),
            1e-4);
}

TEST_F(ExplicitLoss, AsWrittenDependsOnTheLayout) {
  RunConfig config = small_config(3, 4);
  energy(config).negatives = Negatives::layer;
  EXPECT_LT(worst_error(of_ranks(*scenario_, config, {kIds}), of_reference(*scenario_, config, {kIds})),
            1e-12);
  energy(config).layer.as_written = true;
  EXPECT_GT(worst_error(of_ranks(*scenario_, config, {kIds}), of_reference(*scenario_, config, {kIds})),
            1e-3);
}

TEST_F(ExplicitLoss, SaysItsCompositionAndOtherRunsHaveNoActionHead) {
  RunConfig config = small_config(3, 4);
  energy(config).negatives = Negatives::mixed;
  const StepGradients mixed = of_ranks(*scenario_, config, {kIds});
  std::map<std::string, double> scalars;
  for (const auto& [name, value] : mixed.outputs[1].scalars) {
    scalars[name] = value;
  }
  EXPECT_EQ(scalars.at("negatives_in_batch"), 11);
  EXPECT_EQ(scalars.at("negatives_explicit"), 8);
  EXPECT_DOUBLE_EQ(scalars.at("chance_nats"), std::log(32.0));
  EXPECT_GT(scalars.at("prediction_error"), 0);
  EXPECT_EQ(scalars.at("energies_computed"), 4 * (12 + 8));
  EXPECT_EQ(mixed.outputs[1].records.front().columns.size(), 20U);
  EXPECT_EQ(mixed.outputs[1].records.front().columns.back(), -9);
  energy(config).negatives = Negatives::global;
  const StepGradients global = of_ranks(*scenario_, config, {kIds});
  EXPECT_FALSE(global.by_group.contains("action_head"));
  energy(config).tile_columns = 5;
  const StepGradients tiled = of_ranks(*scenario_, config, {kIds});
  const std::vector<StreamUse>& uses = tiled.outputs[1].streams;
  ASSERT_EQ(uses.size(), 3U);
  EXPECT_EQ(uses[2].name, "dropout replay");
  EXPECT_EQ(uses[1].fingerprint, uses[2].fingerprint);
  EXPECT_EQ(uses[1].draws, uses[2].draws);
}

// One row's parts of the model have the bits of the model's own, forward and backward.

struct Case {
  EnergyShape shape;
  at::ScalarType dtype;
  int64_t candidates;
  bool dropout, bfloat16, predicted = false;  ///< predicted: candidates have a gradient, too
};

/// Energies and gradients, of parameters and of the candidates' encoder, as a row of exact arithmetic has them.
std::vector<at::Tensor> computed(EnergyModel& model, const Case& of, bool as_one_row) {
  const at::Tensor context = at::linspace(-2, 2, of.shape.context_steps * of.shape.channels, of.dtype)
                                 .sin()
                                 .view({1, of.shape.context_steps, of.shape.channels});
  const at::Tensor mask = at::arange(of.shape.context_steps).ge(of.shape.context_steps / 3).unsqueeze(0);
  const int64_t values = of.shape.action_steps * of.shape.channels;
  const at::Tensor action =
      at::linspace(-1, 3, of.candidates * values, of.dtype).cos().view({of.candidates, values}).requires_grad_(of.predicted);
  const EnergyModel used = of.bfloat16 ? model.cast(at::kBFloat16) : model;
  at::Tensor factors;
  if (of.dropout) {
    factors = (at::linspace(0, 40, of.candidates * of.shape.hidden, of.dtype).sin() > -0.8).to(used.dtype()) * 1.25;
    factors = factors.view({1, of.candidates, of.shape.hidden});
  }
  const at::Tensor encoded = as_one_row ? encode_row_action(used, action) : used.encode_action(action);
  EncodedContext rows = as_one_row ? encode_row_context(used, context, mask) : used.encode_context(context, mask);
  at::Tensor energies;
  if (as_one_row) {
    energies = row_head(used, rows, encoded, factors);
  } else {
    rows.steps_BSD = rows.steps_BSD.alias();
    energies = used.head(rows, encoded, factors);
  }
  const at::Tensor loss = at::logsumexp(-energies.to(of.dtype) / used.temperature(), 1).sum() + energies.select(1, 0).sum();
  std::vector<at::Tensor> results{energies, loss};
  RowBackward row(model.parameters().tensors);
  for (const at::Tensor& gradient : row.gradients(loss)) results.push_back(gradient);
  loss.backward();
  for (at::Tensor& parameter : model.parameters().tensors) {
    results.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
  }
  EXPECT_EQ(action.grad().defined(), of.predicted);
  if (of.predicted) results.push_back(action.grad());
  return results;
}

TEST(RowModel, HasTheModelsBits) {
  std::vector<Case> cases;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t width : {1, 8, 32, 37}) {
      for (const int64_t candidates : {1, 2, 24}) {
        cases.push_back({{16, 6, 8, width, 2 * width, 0}, dtype, candidates, candidates != 2, false});
      }
    }
  }
  cases.push_back({{1, 1, 1, 4, 8, 0}, at::kFloat, 3, true, false});
  cases.push_back({{16, 6, 8, 128, 256, 0}, at::kFloat, 24, true, false});
  cases.push_back({{16, 6, 8, 32, 64, 0}, at::kFloat, 24, true, true});
  cases.push_back({{16, 6, 8, 32, 64, 0}, at::kFloat, 24, true, false, true});
  for (const Case& of : cases) {
    EnergyModel model(of.shape, 0.5, 3, of.dtype);
    const std::vector<at::Tensor> expected = computed(model, of, false), found = computed(model, of, true);
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t k = 0; k < expected.size(); ++k) {
      ASSERT_EQ(expected[k].defined(), found[k].defined()) << k;
      if (!expected[k].defined()) continue;
      EXPECT_EQ(expected[k].sizes(), found[k].sizes()) << k;
      EXPECT_TRUE(at::equal(expected[k], found[k]))
          << k << " of width " << of.shape.width << ", " << of.candidates << " candidates, " << of.dtype;
    }
  }
}

}  // namespace
}  // namespace lockstep
