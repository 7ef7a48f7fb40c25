#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/rollout.h"
#include "scenarios/flow_rl/tasks/tasks.h"

namespace lockstep {
namespace {

using When = MetricSpec::When;

std::string where_ranks_differ(const RunConfig& config) {
  if (config.arithmetic == Arithmetic::exact) return "is measured where arithmetic is native: it depends on the layout";
  return "";
}

std::string where_tasks_are_partitioned(const RunConfig& config) {
  if (flow_rl(config).rollouts != RolloutsBy::tasks) return "is measured with rollouts tasks";
  return where_ranks_differ(config);
}

/// Of tasks that the run does not have.
template <std::size_t kTask>
std::string where_it_is_trained(const RunConfig& config) {
  for (const int task : tasks_of(flow_rl(config))) {
    if (task == static_cast<int>(kTask)) return "";
  }
  return "is measured where tasks names it";
}

#define LOCKSTEP_TASK_METRIC(index, task)                                                                         \
  MetricSpec {                                                                                                    \
    .name = "success_" task, .help = "success of the task " task, .when = When::evaluation, .family = "success",  \
    .qualifier = task, .higher_is_better = true, .test_samples = 1, .unmeasured = &where_it_is_trained<index>     \
  }

constexpr MetricSpec kMetrics[] = {
    {.name = "loss", .help = "the step's loss", .higher_is_better = false, .shown = true, .train_words = "training loss"},
    {.name = "gradient_norm", .help = "of the whole gradient, before it is clipped"},
    {.name = "learning_rate", .help = "after rule, scale and schedule"},
    {.name = "train_success", .help = "share of the step's episodes that succeeded", .higher_is_better = true,
     .shown = true},
    {.name = "reward_mean", .help = "over the step's episodes", .higher_is_better = true, .shown = true},
    {.name = "reward_deviation", .help = "over the step's episodes"},
    {.name = "cost_mean", .help = "of the second score, over the step's episodes"},
    {.name = "flipped_signs", .help = "share of the step's advantages whose sign would be another with statistics of each "
                                      "rank's own rows",
     .unmeasured = &where_ranks_differ},
    {.name = "rollout_imbalance", .help = "simulated steps of the rank with most of them, over an even share, as they were partitioned",
     .unmeasured = &where_tasks_are_partitioned},
    {.name = "kl", .help = "divergence from the cloned policy, a chunk of this rank's first pass, in nats"},
    {.name = "ratio_gap", .help = "largest |ratio - 1| of this rank's first pass; 0 at the first update of a rollout"},
    {.name = "log_pi_gap", .help = "largest difference of a transition's log-probability from the rollout's own, in nats"},
    {.name = "success", .help = "share of the evaluation's episodes that succeed", .when = When::evaluation,
     .higher_is_better = true, .shown = true, .has_area = true, .test_samples = 1},
    {.name = "return", .help = "mean reward of the evaluation's episodes", .when = When::evaluation,
     .higher_is_better = true, .shown = true, .test_samples = 1},
    {.name = "cost", .help = "mean cost of the evaluation's episodes", .when = When::evaluation,
     .higher_is_better = false, .test_samples = 1},
    {.name = "cloned_success", .help = "success of the cloned policy, from which training began, on probing episodes",
     .when = When::end, .higher_is_better = true},
    LOCKSTEP_TASK_METRIC(0, "reach"), LOCKSTEP_TASK_METRIC(1, "follow"), LOCKSTEP_TASK_METRIC(2, "avoid"),
    LOCKSTEP_TASK_METRIC(3, "push"), LOCKSTEP_TASK_METRIC(4, "slide"), LOCKSTEP_TASK_METRIC(5, "sweep"),
    LOCKSTEP_TASK_METRIC(6, "place"), LOCKSTEP_TASK_METRIC(7, "sort"), LOCKSTEP_TASK_METRIC(8, "insert"),
    LOCKSTEP_TASK_METRIC(9, "press"), LOCKSTEP_TASK_METRIC(10, "drawer"), LOCKSTEP_TASK_METRIC(11, "turn"),
};
#undef LOCKSTEP_TASK_METRIC

std::span<const MetricSpec> metrics() { return kMetrics; }

std::any section() { return FlowRlConfig{}; }

std::optional<SampleCounts> counted_samples(const RunConfig& config) {
  const FlowRlConfig& own = flow_rl(config);
  return SampleCounts{own.episodes, 0, static_cast<int64_t>(own.eval_episodes * tasks_of(own).size())};
}

/// Nothing is read: the simulator makes everything. Its version is part of the hash.
DataFacts inspect_data(const RunConfig& config) {
  constexpr uint64_t kSimulator = 1;
  return {*counted_samples(config), hex16(keyed(kSimulator, flow_rl(config).episodes))};
}

std::string how_to_get_samples(const RunConfig& config, std::string_view part) {
  const FlowRlConfig& own = flow_rl(config);
  if (part == "training") return fmt::format("more come with a larger episodes ({})", own.episodes);
  return fmt::format("more come with a larger eval_episodes ({})", own.eval_episodes);
}

std::vector<ModelParameter> parameters(const RunConfig& config, int64_t /*channels*/) {
  const FlowConfig& flow = flow_rl(config).policy;
  const int64_t w = flow.hidden, out = int64_t{flow.chunk} * kActionNumbers;
  const int64_t in = kObserved + out + FlowConfig::kTransitions;
  return {{"input.weight", {w, in}}, {"input.bias", {w}},           {"hidden.weight", {w, w}},
          {"hidden.bias", {w}},      {"output.weight", {out, w}}, {"output.bias", {out}}};
}

/// With global statistics every partitioning of the rows means the same: one process holds them all.
void make_oracle(const RunConfig& cell, RunConfig& oracle) {
  if (flow_rl(cell).statistics != StatisticsOf::global) return;
  oracle.oracle_world = 1;
  oracle.rows = RowPartition::equal;
  oracle.accumulation = 1;
}

std::string objective(const RunConfig& config) {
  const FlowRlConfig& own = flow_rl(config);
  return fmt::format("{} {}", word_of(own.advantages), word_of(own.statistics));
}

std::string other_objective(const RunConfig& config, const RunConfig& reference) {
  const FlowRlConfig &own = flow_rl(config), &others = flow_rl(reference);
  if (own.advantages != others.advantages) {
    return fmt::format("advantages are {} instead of {}", word_of(own.advantages), word_of(others.advantages));
  }
  const auto rows_of = [](const RunConfig& run, const FlowRlConfig& settings) {
    const Layout layout = meant_layout(run);
    return settings.statistics == StatisticsOf::local ? layout.rows_per_rank : layout.global_batch();
  };
  const int rows = rows_of(config, own), wanted = rows_of(reference, others);
  return rows == wanted ? "" : fmt::format("advantages are made of the rewards of {} rows instead of {}", rows, wanted);
}

std::string noise_scale_caveat(const RunConfig&) {
  return "The theory does not apply: an advantage is made of the rewards of other rows, so rows are not independent.";
}

bool sets_convention(const RunConfig& config) { return !(flow_rl(config).convention == ConventionKeys{}); }

constexpr std::array<std::string_view, kTermKinds> kTermWords{
    "log-probability of the rollout", "action", "reward", "cost", "success", "old log-probability", "log-probability", "divergence from the clone", "advantage"};

}  // namespace

std::string term_words(int64_t column) {
  const Term term = term_of(column);
  const auto kind = static_cast<std::size_t>(term.kind);
  if (kind >= kTermWords.size()) return fmt::format("column {}", column);
  const bool of_chunks = term.kind == TermKind::action || term.kind == TermKind::kl;
  const bool of_transitions = term.kind == TermKind::chosen || term.kind == TermKind::old_log_pi || term.kind == TermKind::log_pi;
  if (!of_chunks && !of_transitions) return std::string(kTermWords[kind]);
  return fmt::format("{}, chunk {}{}", kTermWords[kind], term.chunk,
                     of_transitions ? fmt::format(", transition {}", term.transition) : "");
}

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
  const bool of_groups = own.advantages != AdvantageForm::normalised;
  if (rows % own.group != 0 && (own.rollouts == RolloutsBy::tasks || rows % own.group == 1)) {
    found.emplace_back("group", fmt::format("{} rows of a step are not a whole number of groups of {}", rows, own.group));
  }
  if (of_groups && own.group < 2) {
    found.emplace_back("group", fmt::format("advantages {} needs groups of 2 rows or more", word_of(own.advantages)));
  }
  if (!of_groups && rows < 2) {
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

std::vector<KeyProblem> problems(const RunConfig& config, const CheckedFor&) {
  Found found;
  check_tasks(flow_rl(config), found);
  check_policy(flow_rl(config).policy, found);
  check_rows(config, found);
  check_rollouts(config, found);
  check_core(config, found);
  return found;
}

}  // namespace

const TrainerSpec& flow_rl_spec() {
  static const TrainerSpec kSpec{
      .name = "flow_rl",
      .help = "a flow-matching policy on simulated manipulation tasks, trained by RLOO or normalised advantages",
      .naming_key = "advantages",
      .fields = &flow_rl_fields,
      .section = &section,
      .problems = &problems,
      .inspect_data = &inspect_data,
      .counted_samples = &counted_samples,
      .how_to_get_samples = &how_to_get_samples,
      .samples_word = "episodes",
      .parameters = &parameters,
      .usual_parameter = "hidden.weight",
      .metrics = &metrics,
      .shown_metric = "success",
      .make_oracle = &make_oracle,
      .objective = &objective,
      .other_objective = &other_objective,
      .noise_scale_caveat = &noise_scale_caveat,
      .sets_convention = &sets_convention,
      .scores = {.record = "terms", .row = "episode", .column = "term", .column_name = &term_words},
  };
  return kSpec;
}

}  // namespace lockstep
