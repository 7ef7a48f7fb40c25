#include "harness/suites/faults/faults_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/base/clean_text.h"
#include "harness/base/nearest.h"
#include "harness/suites/engine/section_schema.h"
#include "harness/verdict/config/field_schema.h"

namespace lockstep::faults {
namespace {

constexpr std::string_view kTriesKey = "faults.tries";
constexpr Range kSeconds{0.01, 3600}, kCount{1, 1e6};

std::vector<std::string_view> mistake_names() { return {"", "unwatched"}; }

#define FAULTS(key, member, ...)                                                                \
  Field<FaultsConfig> {                                                                         \
    {"faults." key, __VA_ARGS__}, [](FaultsConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    FAULTS("threshold_s", threshold_s, kSeconds, "s",
        "longest time without progress in a step or an evaluation of the suite's programs; a save and the "
        "teardown have twice as long"),
    FAULTS("control_repeats", control_repeats, kCount, "runs", "runs of each correct program, the control runs"),
    FAULTS("dead", dead, kCount, "kills", "times that one of eight ranks is killed at a random moment"),
    FAULTS("hung", hung, kCount, "stops", "times that one of three ranks is stopped at a random moment"),
    FAULTS("hung_threshold_s", hung_threshold_s, kSeconds, "s", "`faults.threshold_s` of the runs with a stopped rank"),
    FAULTS("steady_steps", steady_steps, kCount, "steps", "length of the run with stragglers, which must raise no alarm"),
    FAULTS("steady_threshold_s", steady_threshold_s, kSeconds, "s",
        "threshold of that run, in which every rank is also late at every step by up to a twenty-fifth of it"),
    FAULTS("straggle_share", straggle_share, Range{0, 1}, "",
        "share of that run's steps at which a rank is late by half the threshold"),
    FAULTS("deadline_s", deadline_s, kSeconds, "s", "a program that takes longer is killed, which is a fault"),
    FAULTS("seed", seed, Range{0, 1e6}, "", "seed of ranks and moments"),
    FAULTS("mistake", mistake, {}, "",
        "mistake planted in the bench, to check that it is found: `unwatched` sees no hang; empty: none", Words::any,
           Setter::user, &mistake_names),
};
#undef FAULTS

}  // namespace

FaultsConfig read_faults_config(const SuiteSource& source, Problems& problems) {
  FaultsConfig config;
  SuiteSource plain = source;
  for (Entry& entry : plain.entries) {
    if (entry.key == "faults.twin_repeats") entry.key = "faults.control_repeats";  // its name until 0.1
  }
  if (const Entry* entry = source.find(kTriesKey)) {
    if (!entry->value.is_sequence() || entry->value.items.empty()) problems.add(entry->place, "faults.tries must be a list");
    for (const YamlNode& item : entry->value.items) {
      config.tries.push_back(item.text == "twin" ? "control" : item.text);  // its name until 0.1
      const std::vector<std::string_view> known(std::begin(kTries), std::end(kTries));
      if (std::ranges::find(known, config.tries.back()) != known.end()) continue;
      problems.add(entry->place, fmt::format("faults.tries: unknown {}; known are {}", in_quotes(item.text), fmt::join(known, ", ")),
                   nearest(item.text, known));
    }
    std::erase_if(plain.entries, [](const Entry& each) { return each.key == kTriesKey; });
  }
  if (config.tries.empty()) config.tries.assign(std::begin(kTries), std::end(kTries));
  read_fields<FaultsConfig>(plain, kFields, config, problems);
  return config;
}

nlohmann::ordered_json faults_schema() {
  const FaultsConfig defaults;
  SchemaJson schema = object_schema();
  add_fields(schema, kFields, defaults);
  SchemaJson names = SchemaJson::array();
  for (const std::string_view name : kTries) names.push_back(name);
  schema["properties"]["tries"] = list_schema({{"type", "string"}, {"enum", names}},
      "what is tried: `wrong`, programs with one fault each; `control`, their correct versions; `dead` and "
      "`hung`, kills and stops at random moments; `steady`, stragglers that must raise no alarm; default all");
  return schema;
}

}  // namespace lockstep::faults
