// What `question: config_pairs` asks of a config: nothing but a base, and what else to try it on.

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "harness/base/counted.h"
#include "harness/verdict/plan/planned_run.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/plan/schema.h"
#include "harness/verdict/questions/config_pairs/pairs.h"

namespace lockstep::questions::config_pairs {
namespace {

void read_on(const Entry& entry, MatrixSource& source, Problems& problems) {
  std::vector<std::string>& on = section_of<ConfigPairsConfig>(source.matrix).on;
  on.clear();
  if (!entry.value.is_sequence()) {
    problems.add(entry.place, "config_pairs.on must be a list of settings, key=value with spaces between");
    return;
  }
  for (const YamlNode& item : entry.value.items) {
    if (item.is_scalar() && item.text.find('=') != std::string::npos) {
      on.push_back(item.text);
    } else {
      problems.add(item.place, "settings are key=value with spaces between");
    }
  }
}

SchemaJson on_schema() {
  return {{"type", "array"},
          {"items", {{"type", "string"}}},
          {"description", "further bases of the pairs: settings of both sides (`optimizer=sgd momentum=0.9`), for keys that "
              "act only beside others"}};
}

const std::array kKeys{QuestionKey{.key = "config_pairs.on", .read = &read_on, .schema = &on_schema, .settable = true}};

void finish(MatrixSource& source, Problems& problems) {
  constexpr std::array<std::string_view, 9> kNotOurs{"reference", "axes",   "exclude", "include", "power_controls",
                                                     "expect",    "layout", "seeds",   "mutant.name"};
  for (const std::string_view key : kNotOurs) {
    if (!source.places.contains(key)) continue;
    problems.add(source.place_of(key), fmt::format("{} is not allowed where pairs of configs are tried: they are derived", key));
    source.sound = false;
  }
  Matrix& matrix = source.matrix;
  // Bits at one layout tell whether a key acts, and by how much only where values are kept.
  source.base.trace = TraceLevel::full;
  source.base.layout = {1, 24};
  if (!source.places.contains("forced_steps")) {
    matrix.forced_steps.clear();
    for (int64_t step = 0; step < source.base.steps; ++step) matrix.forced_steps.push_back(step);
  }
  if (!source.places.contains("certify_steps")) matrix.certify_steps = 0;
  if (source.sound) find_config_pairs(source, section_of<ConfigPairsConfig>(matrix), problems);
}

/// Pairs are many: "1x24", "4x6".
std::string line_of(const PlannedRun& run) { return run.cell.substr(0, run.cell.find(' ')); }

std::string headline(const Matrix& matrix) {
  const ConfigPairsConfig& section = section_of<ConfigPairsConfig>(matrix);
  std::string text = counted(static_cast<int64_t>(section.pairs.size()), "pair") + " of configs";
  if (section.left_out.empty()) return text;
  text += fmt::format(", {} left out:", section.left_out.size());
  for (const LeftOut& each : section.left_out) text += fmt::format("\n  {}: {}", each.key, each.why);
  return text;
}

}  // namespace

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "config_pairs",
      .help = "is a key that differs found and named",
      .references = References::own,
      .section = []() -> std::any { return ConfigPairsConfig{}; },
      .keys = []() -> std::span<const QuestionKey> { return kKeys; },
      .finish = &finish,
      .cells = &config_pair_cells,
      .headline = &headline,
      .line_of = &line_of,
  };
  return kPlan;
}

}  // namespace lockstep::questions::config_pairs
