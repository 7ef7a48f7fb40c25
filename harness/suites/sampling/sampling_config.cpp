#include "harness/suites/sampling/sampling_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/base/nearest.h"
#include "harness/suites/engine/section_schema.h"
#include "harness/verdict/config/field_schema.h"
#include "harness/verdict/config/ranges.h"
#include "harness/verdict/config/words.h"

namespace lockstep::sampling {
namespace {

constexpr std::string_view kTasks = "sampling.tasks", kRound = "sampling.round";

#define SAMPLING(member, ...)                                                                          \
  Field<SamplingConfig> {                                                                              \
    {"sampling." #member, __VA_ARGS__}, [](SamplingConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    SAMPLING(experiment, {}, "", "what is tried; `all`: every experiment"),
    SAMPLING(seed, ranges::kSeed, "", "seed of permutations, costs and draws"),
    SAMPLING(most_samples, Range{0, 4096}, "samples", "`sampler`: every number of samples from 0 to this one"),
    SAMPLING(most_ranks, Range{1, kMostOfEach}, "ranks", "every number of ranks from 1 to this one"),
    SAMPLING(epochs, Range{2, 100}, "epochs", "`sampler`: epochs of every case"),
    SAMPLING(planted, {}, "", "also plant the usual mistakes, each of which must be found and named"),
    SAMPLING(samples, Range{1, 1e8}, "samples", "samples of your job, at least one per rank"),
    SAMPLING(ranks, Range{1, kMostRanks}, "ranks", "ranks of your job; above 64 the other trials run at this number too"),
    SAMPLING(drop_last, {}, "", "`drop_last` of your job's sampler"),
    SAMPLING(states, Range{1, 1e6}, "states", "initial states of a task of your job"),
    SAMPLING(states_a_round, Range{1, 1e6}, "states",
        "initial states that a round of your job draws, all ranks together: at most `sampling.states`, at least "
        "one per rank"),
    SAMPLING(episodes, Range{1, 1e6}, "episodes", "episodes of a task in a round; a task may be split into them"),
};
#undef SAMPLING

/// Everything but the tasks.
void read_numbers(const SuiteSource& source, SamplingConfig& config, Problems& problems) {
  std::vector<std::string_view> known{kTasks, kRound};
  for (const auto& field : kFields) known.push_back(field.spec.key);
  for (const Entry& entry : source.entries) {
    if (entry.key == kTasks || entry.key == kRound) continue;
    const auto field = std::ranges::find(kFields, entry.key, [](const auto& each) { return each.spec.key; });
    if (field == kFields.end())
      report_unknown_key(entry.key, entry.place, known, problems);
    else
      read_field(field->spec, field->of(config), entry.value, problems);
  }
}

/// "tasks: {reach: 3.2, push: 1}": measured seconds by name.
void read_tasks(const Entry& entry, SamplingConfig& config, Problems& problems) {
  if (!entry.value.is_map() || entry.value.keys.empty()) {
    problems.add(entry.place, "sampling.tasks must be a map of tasks and their measured seconds");
    return;
  }
  for (std::size_t i = 0; i < entry.value.keys.size(); ++i) {
    sharding::Task task{entry.value.keys[i].text, 0, 1};
    const FieldSpec spec{"sampling.tasks", Range{0, 1e9, true, false}, "s", "measured cost of a task"};
    if (read_field(spec, &task.cost_s, entry.value.items[i], problems))
      config.tasks.push_back(std::move(task));
  }
}

/// "round: [reach, push]"
void read_round(const Entry& entry, SamplingConfig& config, Problems& problems) {
  if (!entry.value.is_sequence() || entry.value.items.empty()) {
    problems.add(entry.place, "sampling.round must be a list of tasks");
    return;
  }
  std::vector<std::string_view> names;
  std::string known;
  for (const sharding::Task& task : config.tasks) {
    names.push_back(task.name);
    known += (known.empty() ? "" : ", ") + task.name;
  }
  if (names.empty()) {
    problems.add(entry.place, "sampling.round names tasks, and sampling.tasks gives none");
    return;
  }
  std::set<std::string> taken;
  for (const YamlNode& item : entry.value.items) {
    const auto at = std::ranges::find(names, std::string_view(item.text));
    if (!item.is_scalar() || at == names.end()) {
      problems.add(item.place, fmt::format("unknown task {}; known are {}", in_quotes(item.text), known),
                   nearest(item.text, names));
    } else if (!taken.insert(item.text).second) {
      problems.add(item.place,
                   fmt::format("task {} is named twice; each is done once in a round", in_quotes(item.text)));
    } else {
      config.round.push_back(static_cast<int>(at - names.begin()));
    }
  }
}

Place place_of(const SuiteSource& source, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const Entry* entry = source.find(key))
      return entry->value.place.line > 0 ? entry->value.place : entry->place;
  }
  return source.place;
}

void check_job(const SuiteSource& source, const SamplingConfig& config, Problems& problems) {
  if (config.samples < config.ranks)
    problems.add(place_of(source, {"sampling.samples", "sampling.ranks"}),
                 fmt::format("{} for {}: some ranks have none of their own; at least {} expected",
                             counted(config.samples, "sample"), counted(config.ranks, "rank"), config.ranks));
  if (config.states_a_round > config.states)
    problems.add(place_of(source, {"sampling.states_a_round", "sampling.states"}),
                 fmt::format("a round of {} cannot be drawn without repetition from {}",
                             config.states_a_round, counted(config.states, "initial state")));
  if (config.states_a_round < config.ranks)
    problems.add(place_of(source, {"sampling.states_a_round", "sampling.ranks"}),
                 fmt::format("a round of {} leaves some of {} without an initial state",
                             config.states_a_round, counted(config.ranks, "rank")));
  const std::vector<sharding::Task> tasks = round_of(config);
  if (!tasks.empty() && static_cast<int64_t>(tasks.size()) * config.episodes < config.ranks)
    problems.add(
        place_of(source, {"sampling.episodes", "sampling.round", "sampling.tasks", "sampling.ranks"}),
        fmt::format("{} of {} cannot give each of {} something to do",
                    counted(static_cast<int64_t>(tasks.size()), "task"), counted(config.episodes, "episode"),
                    counted(config.ranks, "rank")));
}

}  // namespace

LOCKSTEP_WORDS(Experiment, control, "all", "sampler", "tasks", "states", "counter", "seeds", "control")

std::vector<int> SamplingConfig::numbers_of_ranks() const {
  std::vector<int> all(static_cast<std::size_t>(most_ranks));
  std::iota(all.begin(), all.end(), 1);
  if (has_many_ranks()) all.push_back(static_cast<int>(ranks));
  return all;
}

SamplingConfig read_sampling_config(const SuiteSource& source, Problems& problems) {
  SamplingConfig config;
  const std::size_t before = problems.size();
  read_numbers(source, config, problems);
  if (const Entry* entry = source.find(kTasks)) read_tasks(*entry, config, problems);
  if (const Entry* entry = source.find(kRound)) read_round(*entry, config, problems);
  for (sharding::Task& task : config.tasks) task.episodes = config.episodes;
  if (problems.size() == before) check_job(source, config, problems);
  return config;
}

nlohmann::ordered_json sampling_schema() {
  const SamplingConfig defaults;
  SchemaJson schema = object_schema();
  add_fields(schema, kFields, defaults);
  schema["properties"]["tasks"] = {{"type", "object"},
                                   {"additionalProperties", {{"type", "number"}, {"exclusiveMinimum", 0}}},
                                   {"description", "map of your job's tasks to their measured seconds"}};
  schema["properties"]["round"] = {
      {"type", "array"},
      {"items", {{"type", "string"}}},
      {"description", "tasks of a round of your job; unknown ones are refused; default all tasks"}};
  return schema;
}

std::vector<sharding::Task> round_of(const SamplingConfig& config) {
  if (config.round.empty()) return config.tasks;
  std::vector<sharding::Task> tasks;
  for (const int task : config.round) tasks.push_back(config.tasks[static_cast<std::size_t>(task)]);
  return tasks;
}

}  // namespace lockstep::sampling
