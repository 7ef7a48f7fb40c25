#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/rewards/advantages.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"

// The trainer flow_rl as programs without LibTorch know it, and its settings.

namespace lockstep {

const TrainerSpec& flow_rl_spec();

/// How an advantage is made of rewards: reward less the mean of the others of its group | less the batch's mean, over
/// the batch's deviation | less the group's mean, over the group's deviation | the same, over the batch's deviation.
enum class AdvantageForm { rloo, normalised, group, group_mean };
/// Whose rewards an advantage is made of: those of all ranks' rows | those of this rank's rows alone.
enum class StatisticsOf { global, local };
/// Where reward and cost are computed: on rank 0, which broadcasts them | on each rank for its rows, then gathered.
enum class RewardSource { root, sharded };
/// Which rank makes a row's rollout: the one that has the row | the one that its task is partitioned to, by measured cost.
enum class RolloutsBy { rows, tasks };

WordList words_of(AdvantageForm);
WordList words_of(StatisticsOf);
WordList words_of(RewardSource);
WordList words_of(RolloutsBy);
std::string_view word_of(AdvantageForm form);
std::string_view word_of(StatisticsOf statistics);
std::string_view word_of(RewardSource source);
std::string_view word_of(RolloutsBy rollouts);

/// The chain of a chunk of actions: noise, then so many transitions of the flow, each a Gaussian.
struct FlowConfig {
  static constexpr int kTransitions = 4;  ///< K
  int chunk = 4;            ///< actions that the policy gives at once
  int horizon = 20;         ///< simulated steps of an episode
  double sigma = 0.2;       ///< deviation of the first transition
  double sigma_last = 0.1;  ///< of the last one; those between lie on a line
  int hidden = 64;          ///< W, of both hidden layers
  bool operator==(const FlowConfig&) const = default;
};

/// The start: behaviour cloned from a scripted expert with noise.
struct CloneConfig {
  int64_t steps = 2000;     ///< updates at most
  double success = 0.2;     ///< ends when so large a share of probing episodes succeeds
  int episodes = 64;        ///< of the expert, of each task
  double noise = 0.3;       ///< deviation of what the expert's actions are off by
  double lr = 2e-3;         ///< of Adam
};

/// How advantages are divided: rewards::Convention, in the keys' words.
struct ConventionKeys {
  int ddof = 0;
  double epsilon = 0;
  bool epsilon_inside = false;
  double floor = 1e-4;
  bool floor_of_variance = false;
  bool operator==(const ConventionKeys&) const = default;
};

struct FlowRlConfig {
  std::string tasks = "all";  ///< names, with spaces between them, or all
  FlowConfig policy;
  CloneConfig clone;
  int64_t episodes = 24576;   ///< rows that there are: none comes twice in a round of them
  int group = 4;              ///< rows of a step that share a task and an initial state
  AdvantageForm advantages = AdvantageForm::rloo;
  ConventionKeys convention;
  StatisticsOf statistics = StatisticsOf::global;
  RewardSource reward_source = RewardSource::root;
  RolloutsBy rollouts = RolloutsBy::rows;
  int rollouts_least = 1;     ///< shares of tasks that every rank must get, with rollouts tasks
  double shaping = 0.5;       ///< of a reward: what coming nearer counts, where success counts 1
  double cost_weight = 0.1;   ///< of the second score in the reward
  double kl = 0.0;            ///< weight of the divergence from the cloned policy
  double clip = 0.2;          ///< the ratio is clipped to 1 +- this, where rollouts may be of an older policy
  int sync_policy_every = 1;  ///< updates between copies of the policy to the rollouts
  int sync_statistics_every = 1;     ///< updates between merges of the running statistics
  bool scale_returns = false;        ///< rewards are divided by their running deviation
  int eval_episodes = 64;            ///< of each task
  bool acted = false;                ///< records what `question: replay` compares
};

/// Of a run of this trainer.
const FlowRlConfig& flow_rl(const RunConfig& config);
FlowRlConfig& flow_rl(RunConfig& config);

/// Its own keys, which stand beside the core's.
std::span<const RunField> flow_rl_fields();

/// Places of the configured tasks among all; words that name none are left out.
std::vector<int> tasks_of(const FlowRlConfig& own);
/// The configured words.
std::vector<std::string> task_words(const FlowRlConfig& own);

/// Deviation of transition k of the chain.
double sigma_of(const FlowConfig& flow, int transition);
/// How its rewards become advantages.
rewards::AdvantageWay way_of(const FlowRlConfig& own);
/// Chunks of an episode.
inline int chunks_of(const FlowConfig& flow) { return flow.horizon / flow.chunk; }

// What stands of each row in the trace beside its loss: one record of rows by columns, so that a comparison can tell the
// rollout from its score, its log-probabilities and its advantage.

/// Kinds of columns, in the order in which a step makes them.
enum class TermKind : int64_t {
  chosen,     ///< log pi of a transition as the rollout drew it: of its noise and its deviation alone
  action,     ///< mean over a chunk's actions as they were taken
  reward,     ///< as this rank has it after the exchange
  cost,       ///< the same of the second score
  success,    ///< 0 or 1
  old_log_pi, ///< log pi of a transition under the policy that the rollout was made by, as the loss takes it
  log_pi,     ///< the same under the policy that is trained
  kl,         ///< of a chunk, to the cloned policy
  advantage,
};
inline constexpr int64_t kTermKinds = 9;

/// Kinds of columns that are there with `acted` alone, by their place: log pi as the update has it at the rollout's
/// weights, and computed again in float64, as declared and with one thing otherwise.
inline constexpr int64_t kFirstAgain = 20;
inline constexpr int kMostBack = 3;  ///< updates
inline constexpr std::string_view kActedAgain[] = {
    "recomputed", "float64", "back_1",  "back_2",  "back_3",  "start",       "schedule_3", "schedule_5",
    "schedule_8", "sigma_1", "sigma_2", "sigma_3", "nosigma", "temperature", "bfloat16",   "float16"};

/// A column's name in a trace: kind, chunk and transition; 0 where a kind has none.
struct Term {
  TermKind kind = TermKind::chosen;
  int64_t chunk = 0, transition = 0;
  bool operator==(const Term&) const = default;
};
constexpr int64_t column_of(const Term& term) {
  return static_cast<int64_t>(term.kind) * 1000000 + term.chunk * 100 + term.transition;
}
constexpr Term term_of(int64_t column) {
  return {static_cast<TermKind>(column / 1000000), column % 1000000 / 100, column % 100};
}

/// "advantage", "log-probability, chunk 3, transition 2": the column in words.
std::string term_words(int64_t column);

}  // namespace lockstep
