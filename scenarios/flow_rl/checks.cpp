#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/base/nearest.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/spec.h"
#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep {
namespace {

using Found = std::vector<KeyProblem>;

void check_tasks(const FlowRlConfig& own, Found& found) {
  const std::vector<std::string> words = task_words(own);
  if (words.empty()) found.emplace_back("tasks", "no task is named: name one or more, or say all");
  std::vector<std::string_view> names{"all"};
  for (const manipulation::ManipulationTask& task : manipulation::manipulation_tasks()) names.push_back(task.name);
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (std::ranges::find(names, word) == names.end()) {
      const std::string_view near = nearest(word, names);
      found.emplace_back("tasks", fmt::format("no task is called {}; {}", word,
                                              near.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                                           : fmt::format("did you mean {}?", near)));
    } else if (!seen.insert(word).second) {
      found.emplace_back("tasks", fmt::format("{} is given twice", word));
    } else if (word == "all" && words.size() > 1) {
      found.emplace_back("tasks", "all includes every task: name no other task");
    }
  }
}

void check_policy(const FlowConfig& flow, Found& found) {
  if (flow.horizon % flow.chunk == 0) return;
  found.emplace_back("policy.horizon", fmt::format("{} simulated steps are not a whole number of chunks of {}", flow.horizon,
                                                   flow.chunk));
}

void check_rows(const RunConfig& config, Found& found) {
  const FlowRlConfig& own = flow_rl(config);
  const Layout layout = meant_layout(config);
  const int rows = layout.global_batch();
  if (rows % own.group != 0) {
    found.emplace_back("group", fmt::format("{} rows of a step are not a whole number of groups of {}", rows, own.group));
  }
  if (own.advantages == AdvantageForm::rloo && own.group < 2) {
    found.emplace_back("group", "advantages rloo needs groups of 2 rows or more");
  }
  if (own.advantages == AdvantageForm::normalised && rows < 2) {
    found.emplace_back("advantages", "advantages normalised needs 2 rows a step or more: one has no deviation");
  }
  if (own.episodes < rows) {
    found.emplace_back("episodes", fmt::format("{} episodes are fewer than the {} rows of a step", own.episodes, rows));
  }
  if (own.advantages == AdvantageForm::normalised && own.statistics == StatisticsOf::local && layout.rows_per_rank < 2) {
    found.emplace_back("statistics", "statistics local with one row a rank leaves every advantage 0: take 2 or more rows");
  }
  if (const auto tasks = static_cast<int>(tasks_of(own).size()); tasks > rows / std::max(own.group, 1)) {
    found.emplace_back("tasks", fmt::format("{} tasks do not come into each step of {} groups: take larger batches or fewer "
                                            "tasks",
                                            tasks, rows / std::max(own.group, 1)));
  }
}

void check_rollouts(const RunConfig& config, Found& found) {
  const FlowRlConfig& own = flow_rl(config);
  if (own.rollouts == RolloutsBy::rows) {
    if (own.rollouts_least > 1) found.emplace_back("rollouts_least", "rollouts_least has no effect with rollouts rows");
    return;
  }
  if (config.rank_seed != RankSeed::keyed) {
    found.emplace_back("rollouts", "rollouts tasks makes a row's rollout on another rank: it needs rank_seed keyed");
  }
  const int groups = config.layout.global_batch() / own.group, ranks = config.layout.world_size;
  if (groups < ranks * own.rollouts_least) {
    found.emplace_back("rollouts", fmt::format("{} groups of a step do not give {} ranks {} each", groups, ranks,
                                               own.rollouts_least));
  }
}

void check_core(const RunConfig& config, Found& found) {
  if (config.data.correlation > 0) {
    found.emplace_back("data.correlation", "data.correlation mixes the contents of rows: the trainer flow_rl needs 0");
  }
  if (config.arithmetic == Arithmetic::exact && flow_rl(config).statistics == StatisticsOf::local) {
    found.emplace_back("statistics", "statistics local depend on who has which rows: arithmetic exact needs statistics "
                                     "global");
  }
}

}  // namespace

std::vector<KeyProblem> flow_rl_problems(const RunConfig& config, const CheckedFor&) {
  Found found;
  check_tasks(flow_rl(config), found);
  check_policy(flow_rl(config).policy, found);
  check_rows(config, found);
  check_rollouts(config, found);
  check_core(config, found);
  return found;
}

}  // namespace lockstep
