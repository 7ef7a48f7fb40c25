#include "scenarios/flow_rl/config.h"

#include <sstream>

#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "scenarios/flow_rl/tasks/tasks.h"

// The trainer's table: one line a key. A test counts the struct's members, so that none is forgotten here.

namespace lockstep {
namespace {

using namespace ranges;

// The member's own spelling is its key.
#define FLOW_RL(member, ...)                                                                    \
  {                                                                                             \
    {#member, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return ref_to(flow_rl(c).member); } \
  }
const RunField kFields[] = {
    FLOW_RL(tasks, kAny, "", "simulated tasks, with spaces between their names, or all"),
    FLOW_RL(policy.chunk, Range{1, 64}, "simulated steps", "actions that the policy gives at once"),
    FLOW_RL(policy.horizon, Range{1, 1024}, "simulated steps", "of an episode: whole chunks"),
    FLOW_RL(policy.sigma, Range{0.001, 10}, "", "deviation of the first transition of a chunk's chain"),
    FLOW_RL(policy.sigma_last, Range{0.001, 10}, "", "of the last one; those between lie on a line"),
    FLOW_RL(policy.hidden, up_to(4096), "", "of both hidden layers"),
    FLOW_RL(clone.steps, Range{0, 1e6}, "updates", "of behaviour cloning, at most"),
    FLOW_RL(clone.success, Range{0, 1}, "", "cloning ends when so large a share of probing episodes succeeds"),
    FLOW_RL(clone.episodes, Range{1, 1e5}, "episodes", "of the scripted expert, of each task"),
    FLOW_RL(clone.noise, Range{0, 10}, "", "deviation of what the expert's actions are off by"),
    FLOW_RL(clone.lr, Range{0, 1, true, false}, "", "learning rate of cloning, by Adam"),
    FLOW_RL(episodes, Range{1, 1e8}, "episodes", "rows that there are; none comes twice in a round of them"),
    FLOW_RL(group, Range{1, 4096}, "rows", "of a step that share a task and an initial state"),
    FLOW_RL(advantages, kAny, "", "less the mean of the group's others, or of batch or group, over a deviation"),
    FLOW_RL(convention.ddof, Range{0, 1}, "", "the variance divides by count - ddof"),
    FLOW_RL(convention.epsilon, Range{0, 100}, "", "what is added to the deviation"),
    FLOW_RL(convention.epsilon_inside, kAny, "", "the epsilon is added to the variance"),
    FLOW_RL(convention.floor, Range{0, 100}, "", "least deviation that divides"),
    FLOW_RL(convention.floor_of_variance, kAny, "", "the floor is the least variance"),
    FLOW_RL(statistics, kAny, "", "whose rewards an advantage is made of: all ranks', or this rank's alone"),
    FLOW_RL(reward_source, kAny, "", "rank 0 computes reward and cost and broadcasts them; or each rank its rows'"),
    FLOW_RL(rollouts, kAny, "",
            "a rank makes the rollouts of its rows; or those of the tasks partitioned to it by measured cost"),
    FLOW_RL(rollouts_least, Range{1, 4096}, "shares", "of tasks that every rank gets at least, with rollouts tasks"),
    FLOW_RL(shaping, Range{0, 100}, "", "what coming nearer counts in a reward, where success counts 1"),
    FLOW_RL(cost_weight, Range{0, 100}, "", "what the second score, a cost, takes off a reward"),
    FLOW_RL(kl, Range{0, 1000}, "", "weight of the divergence from the cloned policy in the loss"),
    FLOW_RL(clip, Range{0, 10, true, false}, "", "the ratio is clipped to 1 +- this, with sync_policy_every above 1"),
    FLOW_RL(sync_policy_every, Range{1, 1e6}, "updates", "between copies of the policy to the rollouts"),
    FLOW_RL(sync_statistics_every, Range{1, 1e6}, "updates", "between merges of the running statistics"),
    FLOW_RL(scale_returns, kAny, "", "rewards are divided by their running deviation"),
    FLOW_RL(eval_episodes, Range{1, 1e5}, "episodes", "of each task that an evaluation takes"),
    FLOW_RL(acted, kAny, "",
            "records log-probabilities as acted and as recomputed, also with one thing otherwise: for question replay, "
            "which sets it"),
};
#undef FLOW_RL

}  // namespace

LOCKSTEP_WORDS_BOTH_WAYS(AdvantageForm, group_mean, "rloo", "normalised", "group", "group_mean")
LOCKSTEP_WORDS_BOTH_WAYS(StatisticsOf, local, "global", "local")
LOCKSTEP_WORDS_BOTH_WAYS(RewardSource, sharded, "root", "sharded")
LOCKSTEP_WORDS_BOTH_WAYS(RolloutsBy, tasks, "rows", "tasks")

std::span<const RunField> flow_rl_fields() { return kFields; }

const FlowRlConfig& flow_rl(const RunConfig& config) { return own_settings<FlowRlConfig>(config, "flow_rl"); }
FlowRlConfig& flow_rl(RunConfig& config) { return own_settings<FlowRlConfig>(config, "flow_rl"); }

std::vector<std::string> task_words(const FlowRlConfig& own) {
  std::istringstream text(own.tasks);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

std::vector<int> tasks_of(const FlowRlConfig& own) {
  std::vector<int> tasks;
  for (const std::string& word : task_words(own)) {
    if (word == "all") {
      for (int task = 0; task < static_cast<int>(manipulation::manipulation_tasks().size()); ++task) tasks.push_back(task);
    } else if (const int task = manipulation::find_task(word); task >= 0) {
      tasks.push_back(task);
    }
  }
  return tasks;
}

rewards::AdvantageWay way_of(const FlowRlConfig& own) {
  using enum rewards::Estimator;
  constexpr rewards::Estimator kEstimators[] = {leave_one_out, global, group, group_mean};
  const ConventionKeys& keys = own.convention;
  return {kEstimators[static_cast<std::size_t>(own.advantages)],
          {.ddof = keys.ddof,
           .epsilon = keys.epsilon,
           .epsilon_place = keys.epsilon_inside ? rewards::EpsilonPlace::inside : rewards::EpsilonPlace::outside,
           .floor = keys.floor,
           .floor_place = keys.floor_of_variance ? rewards::FloorPlace::variance : rewards::FloorPlace::deviation,
           .non_finite = rewards::NonFinite::mask}};  // a policy of NaN is reported where its parameters became so
}

double sigma_of(const FlowConfig& flow, int transition) {
  const double share = static_cast<double>(transition) / (FlowConfig::kTransitions - 1);
  return flow.sigma + (flow.sigma_last - flow.sigma) * share;
}

}  // namespace lockstep
