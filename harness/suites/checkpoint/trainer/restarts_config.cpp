#include "harness/suites/checkpoint/trainer/restarts_config.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/clean_text.h"
#include "harness/base/errors.h"
#include "harness/base/nearest.h"
#include "harness/suites/engine/section_schema.h"
#include "harness/verdict/config/field_schema.h"
#include "harness/verdict/plan/read_matrix.h"

namespace lockstep::restarts {
namespace {

constexpr std::string_view kSet = "trainer.set", kTries = "trainer.tries", kMatrix = "trainer.matrix";
constexpr Range kSeconds{0.05, 86400}, kCount{0, 1e6};

std::vector<std::string_view> mistake_names() {
  return {"", "one_file_name"};
}

#define TRAINER(key, member, ...)                                                                     \
  Field<RestartsConfig> {                                                                             \
    {"trainer." key, __VA_ARGS__}, [](RestartsConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    TRAINER("matrix", matrix, {}, "", "config whose cell is trained; a relative path starts at this config's folder"),
    TRAINER("cell", cell, {}, "", "name of the cell; its batch is partitioned among as many real ranks as a trial needs"),
    TRAINER("points", subject.points, kCount, "operations",
        "most operations of a save at which each rank is killed, evenly spread; 0: all"),
    TRAINER("resume_steps", subject.resume_steps, Range{1, 1e5}, "steps",
        "the run is stopped at each step up to this one, once and twice in a row"),
    TRAINER("cycles", subject.cycles, Range{1, 1e6}, "cycles", "random kills and restarts of a run of 4 ranks"),
    TRAINER("signals", subject.signals, Range{1, 1e6}, "signals", "SIGTERM or SIGUSR1 at random moments"),
    TRAINER("seed", subject.seed, kCount, "", "seed of the random moments"),
    TRAINER("mistake", subject.mistake, {}, "",
        "mistake planted in the saver that is killed, to check that it is found: `one_file_name`, all ranks "
        "write the same file; empty: none", Words::any,
            Setter::user, &mistake_names),
    TRAINER("deadline_s", deadline_s, kSeconds, "s", "an attempt that takes longer is counted as hung"),
};
#undef TRAINER

std::vector<std::string_view> names_of_experiments() {
  std::vector<std::string_view> names;
  for (const ExperimentKind& kind : experiment_kinds()) names.push_back(kind.name);
  return names;
}

/// The texts of a list, and the entry taken away.
std::vector<std::string> take_list(SuiteSource& source, std::string_view key, Problems& problems) {
  const Entry* entry = source.find(key);
  if (entry == nullptr) return {};
  std::vector<std::string> texts;
  if (!entry->value.is_sequence() || entry->value.items.empty()) {
    problems.add(entry->place, fmt::format("{} must be a list", key));
  }
  for (const YamlNode& item : entry->value.items) texts.push_back(item.text);
  std::erase_if(source.entries, [key](const Entry& each) { return each.key == key; });
  return texts;
}

void check_tries(const SuiteSource& source, const std::vector<std::string>& tries, Problems& problems) {
  const std::vector<std::string_view> names = names_of_experiments();
  const Entry* const entry = source.find(kTries);
  for (const std::string& each : tries) {
    if (std::ranges::find(names, each) != names.end()) continue;
    problems.add(entry == nullptr ? source.place : entry->place,
                 fmt::format("trainer.tries: unknown {}; known are {}", in_quotes(each), fmt::join(names, ", ")),
                 nearest(each, names));
  }
}

/// The cell's config, with what a trial decides by itself set aside.
void read_cell(const SuiteSource& source, RestartsConfig& config, Problems& problems) {
  const Entry* const named = source.find(kMatrix);
  const Place place = named == nullptr ? source.place : named->place;
  std::string path = config.matrix;
  if (!path.starts_with('/') && (named == nullptr || named->place.source == 0))
    path = (std::filesystem::path(source.file).parent_path() / path).string();
  try {
    const Matrix matrix = read_matrix(path, {config.set, config.cell, "", ""});
    if (matrix.cells.empty()) {
      problems.add(place, fmt::format("trainer.cell: {} selects no cell of {}", in_quotes(config.cell), path));
      return;
    }
    config.subject.config = matrix.cells.front().config;
  } catch (const ConfigError& error) {
    problems.add(place, error.what());
    return;
  }
  RunConfig& run = config.subject.config;
  run.checkpoint = CheckpointConfig{};
  run.rows = RowPartition::equal;
  run.snapshot_steps.clear();
  if (run.mutant.name != "none" || run.second_mutant.name != "none")
    problems.add(place, "trainer.cell: what a planted fault remembers stands in no checkpoint; take a cell without a mutant");
}

}  // namespace

RestartsConfig read_restarts_config(const SuiteSource& source, Problems& problems) {
  RestartsConfig config;
  SuiteSource plain = source;
  config.set = take_list(plain, kSet, problems);
  config.tries = take_list(plain, kTries, problems);
  check_tries(source, config.tries, problems);
  if (config.tries.empty()) {
    for (const std::string_view name : names_of_experiments()) config.tries.emplace_back(name);
  }
  read_fields<RestartsConfig>(plain, kFields, config, problems);
  if (config.matrix.empty()) problems.add(source.place, "trainer.matrix is missing: the config whose cell is trained");
  if (config.cell.empty()) problems.add(source.place, "trainer.cell is missing: the name of the cell that is trained");
  if (problems.empty()) read_cell(source, config, problems);
  return config;
}

nlohmann::ordered_json restarts_schema() {
  const RestartsConfig defaults;
  SchemaJson schema = object_schema();
  schema["required"] = {"matrix", "cell"};
  add_fields(schema, kFields, defaults);
  SchemaJson text;
  text["type"] = "string";
  schema["properties"]["set"] = list_schema(std::move(text), "settings of that config, each `key=value`");
  SchemaJson names = SchemaJson::array();
  for (const std::string_view name : names_of_experiments()) names.push_back(name);
  schema["properties"]["tries"] =
      list_schema({{"type", "string"}, {"enum", names}}, "what is tried; default all");
  return schema;
}

}  // namespace lockstep::restarts
