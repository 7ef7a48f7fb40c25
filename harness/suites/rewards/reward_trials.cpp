#include "harness/suites/rewards/reward_trials.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/base/text.h"
#include "harness/run/libraries.h"
#include "harness/suites/engine/suite.h"
#include "harness/suites/rewards/emulated.h"
#include "harness/suites/rewards/judge.h"
#include "harness/suites/rewards/real.h"
#include "harness/suites/rewards/reward_config.h"

namespace lockstep {
namespace rewards {
namespace {

/// Cases of one trial; on real ranks they are one run, and of many ranks fewer: what they take grows with the pairs of ranks, and
/// a trial should end now and then.
constexpr int64_t kBatch = 100, kRealBatch = 400, kFewestReal = 5;
int64_t real_batch(int world) { return std::clamp<int64_t>(kRealBatch * 64 / (world * world), kFewestReal, kRealBatch); }
constexpr double kPairOfRanks_s = 0.0005;
/// Of a run of real ranks: to meet, and a case.
constexpr double kMeet_s = 60, kCase_s = 0.5;

struct Planned {
  Trial trial;
  int world = 1;
  bool real = false;
  std::vector<Order> orders;
};

/// 8 ranks of 8 rows whose means are drawn from N(0, 1), as their rows are around them.
std::string sign_flips();

std::vector<std::pair<std::string, std::string>> facts_of(const Measurements& m, double ulp, bool mutants_tried) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"random cases on emulated ranks", with_commas(m.count("emulated"))},
      {"error of the mean against 34 digits",
       fmt::format("{:.2f} ulp (limit {:g}), condition number up to {:.2g}", m.greatest("mean ulp"), ulp, m.greatest("mean condition"))},
      {"error of the deviation", fmt::format("{:.2f} ulp (limit {:g}), condition number up to {:.2g}", m.greatest("deviation ulp"), ulp, m.greatest("deviation condition"))},
      {"error of the advantages", fmt::format("{:.2f} ulp (limit {:g}), in units of max|r| / sigma", m.greatest("advantage ulp"), ulp)},
      {"error of the running normaliser's mean", fmt::format("{:.2f} ulp of max|r|", m.greatest("normalizer ulp"))}};
  if (const int64_t real = m.count("real"); real > 0) {
    double seconds = 0;
    for (const double each : m.samples().at("seconds of real ranks")) seconds += each;
    facts.emplace_back("random cases on real Gloo ranks",
                       fmt::format("{}, {:.0f} ms each including start-up", with_commas(real), 1000 * seconds / static_cast<double>(real)));
  }
  if (mutants_tried) facts.emplace_back("mutants named at their first step", fmt::format("{} of {}", m.entries("named").size(), mutants().size()));
  facts.emplace_back("advantages that change sign with local normalisation", sign_flips());
  return facts;
}

std::string sign_flips() {
  int64_t flips = 0, all = 0;
  std::vector<int64_t> ids(72);
  std::iota(ids.begin(), ids.end(), 0);
  for (uint64_t key = 0; key < 500; ++key) {
    // First states of chains are standard normal draws: 64 of rows, 8 of ranks.
    const Rollout draws = roll_out({}, {1.0}, ids, {1, 1}, key);
    std::vector<double> rewards(64);
    for (std::size_t i = 0; i < rewards.size(); ++i) rewards[i] = draws.states[2 * (64 + i / 8)] + draws.states[2 * i];
    const double whole = moments_of(rewards).mean;
    for (std::size_t rank = 0; rank < 8; ++rank) {
      const double own = moments_of(std::span(rewards).subspan(8 * rank, 8)).mean;
      for (std::size_t i = 8 * rank; i < 8 * rank + 8; ++i, ++all) flips += (rewards[i] > whole) != (rewards[i] > own) ? 1 : 0;
    }
  }
  return fmt::format("{:.1f} % of {} (8 ranks of 8 rows, ranks' means from N(0, 1))", 100.0 * static_cast<double>(flips) / static_cast<double>(all), with_commas(all));
}

/// Like cases as one, but for faults.
void put(std::vector<CaseResult>& results, CaseResult next) {
  if (next.verdict == CaseVerdict::fault || !count_alike(results, next.outcome, next.verdict)) results.push_back(std::move(next));
}

std::vector<Answer> answers_of(const std::vector<Played>& by_rank) {
  std::vector<Answer> answers;
  for (const Played& each : by_rank) answers.push_back(answer_of(each));
  return answers;
}

/// Plays cases on one slot.
class Player {
 public:
  Player(const RewardsConfig& config, const Slot& slot) : config_(config), run_(slot.run()), folder_(slot.folder()) {}

  std::vector<CaseResult> run(const Planned& planned) {
    return planned.real ? on_real_ranks(planned) : on_emulated_ranks(planned);
  }

 private:
  std::vector<CaseResult> on_emulated_ranks(const Planned& planned) {
    const CaseRules rules = config_.rules(planned.world);
    std::vector<CaseResult> results;
    for (const Order& order : planned.orders) {
      if (*run_.stop_requested != 0) break;
      const Case one = case_of(rules, order);
      const Plant plant = plant_of(rules, order);
      const std::vector<Played> by_rank = play_emulated(one, plant);
      put(results, judged(rules, order, one, plant, answers_of(by_rank), &by_rank));
      if (plain(order)) measured().add("emulated");
    }
    return results;
  }

  static bool plain(const Order& order) { return order.mutant.empty() && order.fault == FaultKind::none; }

  CaseResult judged(const CaseRules& rules, const Order& order, const Case& one, const Plant& plant,
                    const std::vector<Answer>& by_rank, const std::vector<Played>* played) {
    if (plant.mutant != nullptr) {
      CaseResult result = judge_mutant(one, plant, by_rank);
      if (result.verdict == CaseVerdict::planted) measured().keep("named", std::string(plant.mutant->name));
      return result;
    }
    if (order.fault != FaultKind::none) return judge_fault(one, by_rank, kept_before(rules, order));
    if (played == nullptr) return judge_real(one, by_rank, answer_of(play_emulated(one).front()));
    Distances far;
    CaseResult result = judge_case(one, *played, config_.ulp, far);
    measured().at_least("mean ulp", far.mean_ulp);
    measured().at_least("mean condition", far.mean_condition);
    measured().at_least("deviation ulp", far.deviation_ulp);
    measured().at_least("deviation condition", far.deviation_condition);
    measured().at_least("advantage ulp", far.advantage_ulp);
    measured().at_least("normalizer ulp", far.normalizer_ulp);
    return result;
  }

  /// What ranks hold that stop before the faulty step.
  static std::string kept_before(const CaseRules& rules, const Order& order) {
    Case until = case_of(rules, order);
    until.fault = FaultKind::none;
    until.steps.resize(static_cast<std::size_t>(until.fault_step));
    return answer_of(play_emulated(until).front()).kept;
  }

  std::vector<CaseResult> on_real_ranks(const Planned& planned) {
    if (!real_) real_ = std::make_unique<RealRanks>(rank_program_path(), folder_, run_.stop_requested);
    const CaseRules rules = config_.rules(planned.world);
    const FaultKind fault = planned.orders.front().fault;
    const double deadline_s = kMeet_s + kCase_s * static_cast<double>(planned.orders.size() * static_cast<std::size_t>(planned.world)) +
                              config_.deadline_s;
    const int silent = fault == FaultKind::rank_hangs ? planned.world - 1 : -1;
    const RealAnswers answers = real_->play(rules, planned.orders, deadline_s, silent);
    if (*run_.stop_requested != 0) return {};
    if (!answers.problem.empty())
      return {{answers.problem.find("had not left") != std::string::npos ? "hang" : "failed", CaseVerdict::fault, 1, planned.trial.name + ": " + answers.problem, {}}};
    std::vector<CaseResult> results;
    for (std::size_t at = 0; at < planned.orders.size(); ++at) {
      const Order& order = planned.orders[at];
      const Case one = case_of(rules, order);
      std::vector<Answer> by_rank;
      for (int rank = 0; rank < planned.world; ++rank) {
        const auto& given = answers.by_rank[static_cast<std::size_t>(rank)];
        const bool gone = fault == FaultKind::rank_ends || fault == FaultKind::rank_hangs;
        if (at < given.size())
          by_rank.push_back(given[at]);
        else if (gone && rank == one.fault_rank)
          by_rank.push_back({});
        else
          return {{"failed", CaseVerdict::fault, 1, fmt::format("{}: rank {} gave {} of {} answers", planned.trial.name, rank, given.size(), planned.orders.size()), {}}};
      }
      put(results, judged(rules, order, one, plant_of(rules, order), by_rank, nullptr));
    }
    if (plain(planned.orders.front())) {
      measured().add("real", static_cast<int64_t>(planned.orders.size()));
      measured().sample("seconds of real ranks", answers.seconds);
    }
    return results;
  }

  const RewardsConfig& config_;
  const SuiteRun& run_;
  std::string folder_;
  std::unique_ptr<RealRanks> real_;
};

class RewardsSuite : public Suite {
 public:
  explicit RewardsSuite(RewardsConfig config) : config_(std::move(config)) {}

  std::string subject() const override { return fmt::format("rewards and advantages on {} ranks", fmt::join(config_.ranks, ", ")); }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines{
        fmt::format("{} on emulated ranks: the same bits on every rank and in one process, {:g} ulp from 34 digits",
                    counted(config_.cases, "random case"), config_.ulp)};
    if (config_.real_cases > 0) lines.push_back(fmt::format("{} on real Gloo ranks that stay up: the bits of emulated ones", counted(config_.real_cases, "random case")));
    if (config_.mutants) lines.push_back(fmt::format("{} planted, each to be named in the first step in which it acts", counted(static_cast<int64_t>(mutants().size()), "mutant")));
    if (config_.faults) lines.push_back("reward functions that throw, hang, give too few or NaN, ranks that end or hang: one error on all that are left");
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    planned_.clear();
    for (const int64_t ranks : config_.ranks) {
      const int world = static_cast<int>(ranks);
      // Real ranks first: they take the longest.
      if (config_.real_cases > 0) plan_cases(world, true, share(config_.real_cases, ranks), real_batch(world));
      if (config_.real_cases > 0 && config_.mutants) plan_mutants_on_real_ranks(world);
      if (config_.faults) plan_faults(world);
    }
    for (const int64_t ranks : config_.ranks) {
      const int world = static_cast<int>(ranks);
      plan_cases(world, false, share(config_.cases, ranks), kBatch);
      for (const Mutant& mutant : mutants()) {
        if (config_.mutants && world >= mutant.least_ranks) plan_mutant(world, mutant);
      }
    }
    std::vector<Trial> all;
    for (const Planned& each : planned_) {
      all.push_back(each.trial);
      all.back().run = [this, &each](Slot& slot) { return slot.keep<Player>([&] { return Player(config_, slot); }).run(each); };
    }
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override { return facts_of(m, config_.ulp, config_.mutants); }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"Only what the library records is checked; another trainer must record rows, sums and hashes to be "
            "checked.",
            "Where two ranks disagree about a step or a policy it cannot be known which is wrong, so both are reported."};
  }

 private:
  /// So many of all cases are this number of ranks'.
  int64_t share(int64_t cases, int64_t ranks) const {
    const auto count = static_cast<int64_t>(config_.ranks.size());
    const auto place = std::ranges::find(config_.ranks, ranks) - config_.ranks.begin();
    return cases / count + (place < cases % count ? 1 : 0);
  }

  static std::string place_of(int world, bool real) { return fmt::format("V={}, {}", world, real ? "real Gloo" : "emulated"); }

  void plan_cases(int world, bool real, int64_t cases, int64_t batch) {
    for (int64_t from = 0; from < cases; from += batch) {
      Planned planned{{fmt::format("cases:{}:V{}:{}", real ? "gloo" : "emulated", world, from / batch), "none", place_of(world, real), 0}, world, real, {}};
      for (int64_t number = from; number < std::min(cases, from + batch); ++number) planned.orders.push_back({number, "", FaultKind::none});
      planned.trial.estimate_s = static_cast<double>(planned.orders.size()) * world * (real ? kPairOfRanks_s * world : 0.0005) + (real ? 1 : 0);
      planned_.push_back(std::move(planned));
    }
  }

  void plan_mutant(int world, const Mutant& mutant) {
    Planned planned{{fmt::format("mutant:{}:V{}", mutant.name, world), std::string(mutant.name), "emulated", 0}, world, false, {}};
    for (int64_t number = 0; number < config_.mutant_cases; ++number) planned.orders.push_back({number, std::string(mutant.name), FaultKind::none});
    planned.trial.estimate_s = static_cast<double>(config_.mutant_cases) * world * 0.001;
    planned_.push_back(std::move(planned));
  }

  void plan_mutants_on_real_ranks(int world) {
    Planned planned{{fmt::format("mutants:gloo:V{}", world), "every mutant", place_of(world, true), 0}, world, true, {}};
    for (const Mutant& mutant : mutants()) {
      if (world >= mutant.least_ranks) planned.orders.push_back({0, std::string(mutant.name), FaultKind::none});
    }
    planned.trial.estimate_s = 1 + static_cast<double>(planned.orders.size()) * world * world * kPairOfRanks_s;
    planned_.push_back(std::move(planned));
  }

  void plan_faults(int world) {
    for (int kind = 1; kind <= static_cast<int>(FaultKind::rank_hangs); ++kind) {
      const auto fault = static_cast<FaultKind>(kind);
      const bool by_rank = fault == FaultKind::rank_ends || fault == FaultKind::rank_hangs;
      if (by_rank && world == 1) continue;
      for (const bool real : {false, true}) {
        if (real && config_.real_cases == 0) continue;
        Planned planned{{fmt::format("fault:{}:V{}:{}", expected_code(fault), world, real ? "gloo" : "emulated"), std::string(name_of(fault)), place_of(world, real), real ? 1.0 : 0.1},
                        world, real, {{0, "", fault}}};
        planned_.push_back(std::move(planned));
      }
    }
  }

  RewardsConfig config_;
  std::vector<Planned> planned_;
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  RewardsConfig config = read_rewards_config(source, problems);
  return problems.empty() ? std::make_unique<RewardsSuite>(std::move(config)) : nullptr;
}

}  // namespace
}  // namespace rewards

const SuiteKind& rewards_suite() {
  static const SuiteKind kKind{"rewards", "rewards, statistics and advantages of many ranks, compared with one process; mistakes to be named",
                                    &rewards::make, &rewards::rewards_schema};
  return kKind;
}

}  // namespace lockstep
