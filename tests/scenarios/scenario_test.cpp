#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/trainers/comm/checked.h"
#include "harness/verdict/config/catalogue.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/cells.h"
#include "losses/loss.h"
#include "scenarios/energy/config.h"
#include "scenarios/energy/evaluation.h"
#include "scenarios/energy/model.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/table.h"
#include "scenarios/scenario.h"

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

TEST(EnergyModel, ItsParametersAreThoseThatTrialsDrawFrom) {
  RunConfig config;
  lockstep::energy(config).model.width = 8;
  lockstep::energy(config).model.hidden = 16;
  EnergyModel energy({lockstep::energy(config).data.context_steps, 5, lockstep::energy(config).data.action_steps, 8, 16}, 0.5, 3);
  const std::vector<ModelParameter> expected = spec_of(config).parameters(config, 5);
  ASSERT_EQ(energy.parameters().names.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(energy.parameters().names[i], expected[i].name);
    EXPECT_EQ(energy.parameters().tensors[i].sizes(), at::IntArrayRef(expected[i].shape)) << expected[i].name;
  }
}

TEST(EnergyModel, ItsActionHeadHasTheParametersThatThePlannerKnows) {
  RunConfig config;
  lockstep::energy(config).negatives = Negatives::layer;
  lockstep::energy(config).model = {8, 16, 3};
  EnergyModel energy({lockstep::energy(config).data.context_steps, 5, lockstep::energy(config).data.action_steps, 8, 16, 3}, 0.5, 3);
  const std::vector<ModelParameter> expected = spec_of(config).parameters(config, 5);
  ASSERT_EQ(energy.parameters().names.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(energy.parameters().names[i], expected[i].name);
    EXPECT_EQ(energy.parameters().tensors[i].sizes(), at::IntArrayRef(expected[i].shape)) << expected[i].name;
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
  const std::unique_ptr<Comm> comm = make_solo_comm();
  const std::unique_ptr<Task> task = scenario->make_task(config, *comm, nullptr);
  const std::vector<int64_t> ids{5, 3, 8, 21, 13, 1, 34, 2, 55, 89, 4, 7};
  const auto gradients = [&](int64_t part) {
    for (at::Tensor& parameter : task->parameters().tensors) {
      parameter.mutable_grad() = at::Tensor();
    }
    for (int64_t first = 0; first < 12; first += part) {
      task->forward({4, ids, ids, 0, first, first + part}).loss.backward();
    }
    std::vector<at::Tensor> flat;
    for (const at::Tensor& parameter : task->parameters().tensors) {
      flat.push_back(parameter.grad().flatten());
    }
    return at::cat(flat);
  };
  const at::Tensor whole = gradients(12);
  EXPECT_LT((gradients(3) - whole).norm().item<double>(), 1e-5 * whole.norm().item<double>());
}

}  // namespace
}  // namespace lockstep
