// The trainer flow_rl in one process: its tasks, its network in both forms, its log-probabilities against a float64
// reference, its exchange, and settings that are refused.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/comm/ledger.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/exchange.h"
#include "scenarios/flow_rl/policy.h"
#include "scenarios/flow_rl/rollout.h"
#include "scenarios/flow_rl/tasks/tasks.h"
#include "scenarios/scenario.h"
#include "tests/support/certificate.h"

namespace lockstep {
namespace {

using manipulation::Body;
using manipulation::manipulation_tasks;
using manipulation::ManipulationTask;

RunConfig small_config(int rows = 6) {
  RunConfig config(flow_rl_spec());
  FlowRlConfig& own = flow_rl(config);
  own.tasks = "reach press";
  own.policy.hidden = 8;
  own.policy.horizon = 12;
  own.group = 3;
  own.clone.steps = 2;
  own.clone.episodes = 4;
  own.eval_episodes = 4;
  own.episodes = 240;
  config.layout = {1, rows};
  config.steps = 4;
  return config;
}

// --- the suite ---

TEST(ManipulationTasks, AreAsManyAsAnObservationTells) {
  EXPECT_EQ(manipulation_tasks().size(), static_cast<std::size_t>(kMostTasks));
  std::set<std::string_view> names;
  std::size_t place = 0;
  for (const ManipulationTask& task : manipulation_tasks()) {
    EXPECT_TRUE(names.insert(task.name).second) << task.name;
    EXPECT_EQ(manipulation::find_task(task.name), static_cast<int>(place++));
    bool measured = false;
    for (const MetricSpec& metric : flow_rl_spec().metrics()) {
      measured = measured || metric.name == "success_" + std::string(task.name);
    }
    EXPECT_TRUE(measured) << task.name;
  }
}

TEST(ManipulationTasks, AreSolvedByTheirExpertAndNotByAHandThatRests) {
  for (const ManipulationTask& task : manipulation_tasks()) {
    int solved = 0, by_rest = 0;
    for (uint64_t key = 0; key < 50; ++key) {
      Body body = manipulation::begin_task(task, key), resting = body;
      EXPECT_FALSE(task.solved(body)) << task.name;
      bool done = false, rest_done = false;
      for (int step = 0; step < 20; ++step) {
        if (!done) manipulation::take_step(task, body, task.expert(body));
        done = done || task.solved(body);
        manipulation::take_step(task, resting, {});
        rest_done = rest_done || task.solved(resting);
      }
      solved += done ? 1 : 0;
      by_rest += rest_done ? 1 : 0;
      if (done) {
        EXPECT_LT(task.remaining(body), 0.5) << task.name;
      }
    }
    EXPECT_GE(solved, 40) << task.name;
    EXPECT_LE(by_rest, 2) << task.name;
  }
}

TEST(ManipulationTasks, GiveTheSameBitsAgain) {
  for (const ManipulationTask& task : manipulation_tasks()) {
    Body a = manipulation::begin_task(task, 5), b = manipulation::begin_task(task, 5);
    for (int step = 0; step < 20; ++step) {
      manipulation::take_step(task, a, task.expert(a));
      manipulation::take_step(task, b, task.expert(b));
    }
    EXPECT_EQ(a.hand.x, b.hand.x);
    EXPECT_EQ(a.object.y, b.object.y);
    EXPECT_EQ(a.cost, b.cost);
  }
}

// --- rollouts and log-probabilities ---

ChainTensors chains_of(const FlowConfig& flow, const std::vector<Episode>& episodes, const ObservationScale& scale) {
  const int64_t rows = static_cast<int64_t>(episodes.size()), chunks = chunks_of(flow), numbers = flow.chunk * kActionNumbers;
  ChainTensors chains{at::zeros({rows, chunks, kObserved}, at::kDouble),
                      at::zeros({rows, chunks, FlowConfig::kTransitions + 1, numbers}, at::kDouble),
                      at::zeros({rows, chunks}, at::kBool)};
  for (int64_t row = 0; row < rows; ++row) {
    const Episode& episode = episodes[static_cast<std::size_t>(row)];
    std::copy(episode.chain.begin(), episode.chain.end(), chains.chain_BTKC[row].mutable_data_ptr<double>());
    for (int64_t t = 0; t < chunks; ++t) {
      scale.normalise(std::span(episode.seen).subspan(static_cast<std::size_t>(t * kObserved), kObserved),
                      {chains.seen_BTO[row][t].mutable_data_ptr<double>(), kObserved});
      chains.valid_BT[row][t] = episode.valid[static_cast<std::size_t>(t)] != 0;
    }
  }
  return chains;
}

struct Rolled {
  FlowPolicy policy;
  std::vector<Episode> episodes;
  ObservationScale scale;
};

Rolled rolled(at::ScalarType dtype) {
  const FlowConfig flow = flow_rl(small_config()).policy;
  Rolled made{FlowPolicy(flow, 3, dtype), {}, {}};
  made.scale.deviation.assign(kObserved, 0.7);
  made.scale.mean.assign(kObserved, 0.1);
  const PlainPolicy plain = made.policy.plain();
  for (uint64_t row = 0; row < 4; ++row) made.episodes.push_back(roll_out(flow, plain, made.scale, {0, row, 100 + row}));
  return made;
}

TEST(LogPi, OfEveryTransitionIsTheGaussiansDensity) {
  const Rolled made = rolled(at::kDouble);
  const FlowConfig& flow = made.policy.flow();
  const ChainTensors chains = chains_of(flow, made.episodes, made.scale);
  const c10::NoGradGuard no_grad;
  const at::Tensor terms = log_transitions(made.policy.means(chains), chains, sigmas_of(flow));
  const PlainPolicy plain = made.policy.plain();
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t t = 0; t < chunks_of(flow); ++t) {
      const at::Tensor seen = chains.seen_BTO[row][t].contiguous();
      const auto begun = plain.begin_chunk({seen.const_data_ptr<double>(), kObserved});
      for (int k = 0; k < FlowConfig::kTransitions; ++k) {
        const at::Tensor from = chains.chain_BTKC[row][t][k].contiguous(), to = chains.chain_BTKC[row][t][k + 1].contiguous();
        const auto numbers = static_cast<std::size_t>(from.numel());
        std::vector<double> velocity(numbers);
        plain.velocity(begun, {from.const_data_ptr<double>(), numbers}, k, velocity);
        double expected = 0;
        for (std::size_t c = 0; c < numbers; ++c) {
          const double mean = from.const_data_ptr<double>()[c] + velocity[c] / 4, sigma = sigma_of(flow, k);
          const double z = (to.const_data_ptr<double>()[c] - mean) / sigma;
          expected += -0.5 * z * z - std::log(sigma) - 0.5 * std::log(2 * std::numbers::pi);
        }
        const bool valid = chains.valid_BT[row][t].item<bool>();
        EXPECT_NEAR(terms[row][t][k].item<double>(), valid ? expected : 0, 1e-9);
        const auto at = static_cast<std::size_t>(t * FlowConfig::kTransitions + k);
        EXPECT_NEAR(made.episodes[static_cast<std::size_t>(row)].chosen[at], valid ? expected : 0, 1e-8)
            << "the rollout knows it of its noise alone";
      }
    }
  }
}

TEST(LogPi, HasTheGradientOfFiniteDifferencesInEveryParameter) {
  Rolled made = rolled(at::kDouble);
  const FlowConfig flow = made.policy.flow();
  const ChainTensors chains = chains_of(flow, made.episodes, made.scale);
  const auto log_pi = [&] { return log_transitions(made.policy.means(chains), chains, sigmas_of(flow)).sum(); };
  log_pi().backward();
  for (std::size_t p = 0; p < made.policy.parameters().tensors.size(); ++p) {
    at::Tensor& parameter = made.policy.parameters().tensors[p];
    const at::Tensor gradient = parameter.grad().flatten();
    const c10::NoGradGuard no_grad;
    double* values = parameter.detach().mutable_data_ptr<double>();
    for (int64_t i = 0; i < parameter.numel(); i += std::max<int64_t>(parameter.numel() / 7, 1)) {
      constexpr double kStep = 1e-5;
      const double kept = values[i];
      values[i] = kept + kStep;
      const double above = log_pi().item<double>();
      values[i] = kept - kStep;
      const double below = log_pi().item<double>();
      values[i] = kept;
      const double expected = (above - below) / (2 * kStep), found = gradient[i].item<double>();
      EXPECT_NEAR(found, expected, 1e-5 * std::max(1.0, std::abs(expected))) << made.policy.parameters().names[p] << " " << i;
    }
  }
}

TEST(LogPi, InFloat32IsNearThatOfFloat64AndEqualToItself) {
  const Rolled made = rolled(at::kFloat);
  const FlowConfig& flow = made.policy.flow();
  const ChainTensors chains = chains_of(flow, made.episodes, made.scale);
  const auto terms_in = [&](at::ScalarType dtype) {
    return log_transitions(made.policy.with(made.policy.parameters().tensors, dtype).means(chains), chains, sigmas_of(flow))
        .detach();
  };
  const at::Tensor narrow = terms_in(at::kFloat), wide = terms_in(at::kDouble);
  EXPECT_LT((narrow.to(at::kDouble) - wide).abs().max().item<double>(), 2e-4);
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(narrow, terms_in(at::kFloat))) << "with gradient and without: the same bits";
  const at::Tensor coarse = terms_in(at::kBFloat16);
  EXPECT_EQ(coarse.scalar_type(), at::kFloat);
  EXPECT_GT((coarse - narrow).abs().max().item<double>(), 0);
}

TEST(LogPi, WithoutItsDeviationsTermsIsAnother) {
  const Rolled made = rolled(at::kDouble);
  const FlowConfig& flow = made.policy.flow();
  const ChainTensors chains = chains_of(flow, made.episodes, made.scale);
  const c10::NoGradGuard no_grad;
  const at::Tensor means = made.policy.means(chains), whole = log_transitions(means, chains, sigmas_of(flow)),
                   part = log_transitions(means, chains, sigmas_of(flow), true);
  const double gap = (part - whole)[0][0][0].item<double>();
  EXPECT_NEAR(gap, flow.chunk * 3 * std::log(sigma_of(flow, 0)), 1e-9);
}

TEST(Divergence, IsThatOfGaussiansAndZeroOfEqualOnes) {
  const Rolled made = rolled(at::kDouble);
  const FlowConfig& flow = made.policy.flow();
  const ChainTensors chains = chains_of(flow, made.episodes, made.scale);
  const c10::NoGradGuard no_grad;
  const at::Tensor means = made.policy.means(chains);
  EXPECT_EQ(divergence(means, means, chains, sigmas_of(flow)).abs().max().item<double>(), 0);
  double expected = 0;
  for (int k = 0; k < FlowConfig::kTransitions; ++k) {
    expected += flow.chunk * 3 * 0.01 * 0.01 / (2 * sigma_of(flow, k) * sigma_of(flow, k));
  }
  EXPECT_NEAR(divergence(means, means + 0.01, chains, sigmas_of(flow))[0][0].item<double>(), expected, 1e-12);
}

TEST(Cloning, IsTheSameAgainAndEndsWhereItIsToldTo) {
  RunConfig config = small_config();
  const Cloned a = clone_expert(config), b = clone_expert(config);
  EXPECT_EQ(a.updates, 2);
  for (std::size_t i = 0; i < a.parameters.size(); ++i) EXPECT_TRUE(at::equal(a.parameters[i], b.parameters[i]));
  flow_rl(config).clone.success = 0;
  flow_rl(config).clone.steps = 50;
  EXPECT_EQ(clone_expert(config).updates, 5) << "the first probe succeeds at anything";
}

TEST(Rollout, UsesAsMuchOfItsStreamWhereverItEnds) {
  FlowConfig flow = flow_rl(small_config()).policy;
  flow.horizon = 80;  // time enough for a policy that knows nothing
  const PlainPolicy policy = FlowPolicy(flow, 3, at::kDouble).plain();
  std::set<int64_t> steps;
  for (uint64_t key = 0; key < 300; ++key) {
    const Episode episode = roll_out(flow, policy, {}, {static_cast<int>(key % kMostTasks), key, key});
    steps.insert(episode.steps);
    EXPECT_EQ(episode.draws, 20U * 5 * 12 * 2);
  }
  EXPECT_GT(steps.size(), 1U) << "some end early";
}

// --- running statistics ---

TEST(RunningStatistics, MergeTheDeltaOnceWhereTheyAreTold) {
  RunningStatistics running;
  const std::vector<double> first{1, 2, 6}, second{4, 8};
  const std::vector<rewards::Moments> seen_1(kObserved, rewards::moments_of(first)), seen_2(kObserved, rewards::moments_of(second));
  running.add(seen_1, rewards::moments_of(first), false);
  EXPECT_EQ(running.scale().mean[0], 0) << "nothing is merged yet";
  running.add(seen_2, rewards::moments_of(second), true);
  EXPECT_NEAR(running.scale().mean[3], 21 / 5.0, 1e-12);
  EXPECT_NEAR(running.scale().deviation[3], std::sqrt(121 / 5.0 - 4.2 * 4.2), 1e-12);
  EXPECT_NEAR(running.return_deviation(), running.scale().deviation[0], 1e-12);
  running.add(seen_1, rewards::moments_of(first), true);
  EXPECT_NEAR(running.scale().mean[3], 30 / 8.0, 1e-12) << "what was merged counts once";
}

// --- one rank's steps ---

StepInput step_input(int64_t step, std::vector<int64_t> ids) {
  StepInput input;
  input.step = step;
  input.step_ids = ids;
  input.end_row = static_cast<int64_t>(ids.size());
  input.ids = std::move(ids);
  return input;
}

double scalar_of(const StepOutput& output, std::string_view name) {
  for (const auto& [key, value] : output.scalars) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "no scalar " << name;
  return 0;
}

/// Column of a record of one row of a step.
double term_value(const StepOutput& output, int64_t row, const Term& term) {
  const StepRecord& record = output.records.front();
  for (std::size_t c = 0; c < record.columns.size(); ++c) {
    if (record.columns[c] == column_of(term)) return record.rows[row][static_cast<int64_t>(c)].item<double>();
  }
  ADD_FAILURE() << "no such term";
  return 0;
}

class FlowRlSteps : public testing::Test {
 protected:
  std::unique_ptr<Task> task(const RunConfig& config) {
    config_ = config;
    scenario_->prepare(config_);
    return scenario_->make_task(config_, *comm_, nullptr);
  }
  RunConfig config_;
  std::unique_ptr<Scenario> scenario_ = make_scenario("flow_rl");
  std::unique_ptr<Comm> comm_ = make_solo_comm();
};

TEST_F(FlowRlSteps, TheFirstRatioOfARolloutIsOneInEveryBit) {
  for (const Precision precision : {Precision::float32, Precision::float64, Precision::bfloat16}) {
    RunConfig config = small_config();
    config.precision = precision;
    const auto one = task(config);
    const StepOutput output = one->forward(step_input(0, {9, 4, 30, 2, 17, 8}));
    EXPECT_EQ(scalar_of(output, "ratio_gap"), 0);
    if (precision != Precision::bfloat16) {
      EXPECT_LT(scalar_of(output, "log_pi_gap"), 1e-3);
    }
  }
}

TEST_F(FlowRlSteps, AnOlderPolicyGivesOtherRatiosUntilItIsCopied) {
  RunConfig config = small_config();
  flow_rl(config).sync_policy_every = 2;
  const auto one = task(config);
  const std::vector<int64_t> ids{9, 4, 30, 2, 17, 8};
  const auto moved = [&](int64_t step) {
    const StepOutput output = one->forward(step_input(step, ids));
    const c10::NoGradGuard no_grad;
    for (at::Tensor& parameter : one->parameters().tensors) parameter.detach().mul_(1.01);
    return scalar_of(output, "ratio_gap");
  };
  EXPECT_EQ(moved(0), 0);
  EXPECT_GT(moved(1), 1e-4);
  EXPECT_EQ(moved(2), 0);
}

TEST_F(FlowRlSteps, ALeaveOneOutAdvantageIsLessTheOthersMean) {
  const auto one = task(small_config());
  const StepOutput output = one->forward(step_input(0, {9, 4, 30, 2, 17, 8}));
  // By id: 2 4 8 | 9 17 30, so rows 3 1 5 | 0 4 2.
  for (const std::array<int64_t, 3>& group : {std::array<int64_t, 3>{3, 1, 5}, {0, 4, 2}}) {
    for (int which = 0; which < 3; ++which) {
      const auto reward = [&](int k) {
        return term_value(output, group[static_cast<std::size_t>((which + k) % 3)], {TermKind::reward});
      };
      EXPECT_NEAR(term_value(output, group[static_cast<std::size_t>(which)], {TermKind::advantage}),
                  reward(0) - (reward(1) + reward(2)) / 2, 1e-12);
    }
  }
}

TEST_F(FlowRlSteps, TheLossIsTheMeanOverRowsOfMinusRatioTimesAdvantage) {
  RunConfig config = small_config();
  config.precision = Precision::float64;
  flow_rl(config).advantages = AdvantageForm::normalised;
  flow_rl(config).kl = 0.5;
  const auto one = task(config);
  const c10::NoGradGuard no_grad;
  for (at::Tensor& parameter : one->parameters().tensors) parameter.detach().mul_(1.02);
  const StepOutput output = one->forward(step_input(0, {9, 4, 30, 2, 17, 8}));
  double expected = 0, sum = 0, squares = 0;
  for (int64_t row = 0; row < 6; ++row) {
    const double advantage = term_value(output, row, {TermKind::advantage});
    sum += advantage;
    squares += advantage * advantage;
    for (int64_t t = 0; t < 3; ++t) {
      const bool valid = term_value(output, row, {TermKind::chosen, t, 0}) != 0;
      expected += ((valid ? -advantage : 0) + 0.5 * term_value(output, row, {TermKind::kl, t, 0})) / 3 / 6;
    }
  }
  EXPECT_NEAR(output.loss.item<double>(), expected, 1e-9);
  EXPECT_NEAR(sum, 0, 1e-9);
  EXPECT_NEAR(squares / 6, 1, 1e-9);
}

TEST_F(FlowRlSteps, RowsInAnotherOrderAreTheSameRows) {
  const auto one = task(small_config());
  const StepOutput a = one->forward(step_input(0, {9, 4, 30, 2, 17, 8}));
  const auto other = task(small_config());
  const StepOutput b = other->forward(step_input(0, {2, 4, 8, 9, 17, 30}));
  const std::array<int64_t, 6> place{3, 1, 5, 0, 4, 2};
  for (int64_t row = 0; row < 6; ++row) {
    for (const Term& term : {Term{TermKind::action, 1}, Term{TermKind::reward}, Term{TermKind::advantage}}) {
      EXPECT_EQ(term_value(a, place[static_cast<std::size_t>(row)], term), term_value(b, row, term));
    }
  }
}

TEST_F(FlowRlSteps, EveryParameterOfTheSpecGetsAGradient) {
  const auto one = task(small_config());
  one->forward(step_input(0, {9, 4, 30, 2, 17, 8})).loss.backward();
  support::expect_parameters(one->parameters(), flow_rl_spec().parameters(config_, 0));
  for (const at::Tensor& parameter : one->parameters().tensors) EXPECT_GT(parameter.grad().abs().sum().item<double>(), 0);
}

TEST_F(FlowRlSteps, NoInitialStateComesTwiceInARound) {
  const RunConfig config = small_config();
  std::set<uint64_t> states;
  for (int64_t step = 0; step < 40; ++step) {
    std::vector<int64_t> ids;
    for (int64_t row = 0; row < 6; ++row) ids.push_back((step * 6 + row) * 77 % 240);  // a permutation of all
    const StepRows rows(config, *comm_, step_input(step, ids));
    for (std::size_t row = 0; row < 6; row += 3) {
      EXPECT_EQ(rows.keys(row).state, rows.keys(row + 2).state);
      EXPECT_TRUE(states.insert(rows.keys(row).state).second);
    }
  }
  EXPECT_EQ(states.size(), 80U);
}

// --- settings ---

std::vector<std::string> keys_refused(const RunConfig& config) {
  std::vector<std::string> keys;
  for (const KeyProblem& problem : flow_rl_spec().problems(config, {})) keys.push_back(problem.first);
  return keys;
}

TEST(FlowRlSettings, OfASoundRunAreTaken) { EXPECT_THAT(keys_refused(small_config()), testing::IsEmpty()); }

TEST(FlowRlSettings, ThatCannotBeTrainedAreAllTold) {
  RunConfig config = small_config();
  flow_rl(config).tasks = "reach presss reach";
  flow_rl(config).policy.horizon = 13;
  flow_rl(config).group = 5;
  flow_rl(config).episodes = 5;
  EXPECT_THAT(keys_refused(config), testing::UnorderedElementsAre("tasks", "tasks", "policy.horizon", "group", "episodes", "tasks"));
  for (const auto& [key, problem] : flow_rl_spec().problems(config, {})) {
    if (problem.find("presss") != std::string::npos) {
      EXPECT_THAT(problem, testing::HasSubstr("did you mean press?"));
    }
  }
  config = small_config();
  flow_rl(config).group = 1;
  EXPECT_THAT(keys_refused(config), testing::Contains("group"));
  config = small_config();
  config.layout = {6, 1};
  flow_rl(config).advantages = AdvantageForm::normalised;
  flow_rl(config).statistics = StatisticsOf::local;
  EXPECT_THAT(keys_refused(config), testing::Contains("statistics"));
  flow_rl(config).rollouts = RolloutsBy::tasks;
  config.rank_seed = RankSeed::plus_rank;
  EXPECT_THAT(keys_refused(config), testing::IsSupersetOf({"rollouts", "statistics"}));
  config.layout = {2, 3};
  config.arithmetic = Arithmetic::exact;
  EXPECT_THAT(keys_refused(config), testing::Contains("statistics"));
}

}  // namespace
}  // namespace lockstep
