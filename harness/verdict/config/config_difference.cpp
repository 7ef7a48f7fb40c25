#include "harness/verdict/config/config_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/learning_keys.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

/// How ranks share a step's rows, where a run stops or begins, from whose state gradients are computed, and planted mistakes:
/// what a comparison is across, or what stands for another program.
bool is_across(std::string_view key) {
  static constexpr auto kKeys = std::to_array<std::string_view>({"rows", "stop_after", "resume_from", "resume_step", "oracle_world"});
  static constexpr auto kGroups = std::to_array<std::string_view>({"forced.", "mutant.", "second_mutant."});
  return std::ranges::find(kKeys, key) != kKeys.end() ||
         std::ranges::any_of(kGroups, [key](std::string_view group) { return key.starts_with(group); });
}

}  // namespace

std::vector<ConfigDifference> config_differences(const RunConfig& reference, const RunConfig& cell,
                                                 std::span<const std::string> declared) {
  if (reference.oracle_world > 0 || cell.oracle_world > 0) return {};
  if (reference.trainer != cell.trainer) return {{"trainer", reference.trainer, cell.trainer}};
  std::vector<ConfigDifference> differences;
  for (const RunField* field : fields_of(spec_of(reference))) {
    if (equal(field->of(reference), field->of(cell))) continue;
    const std::string key(field->spec.key);
    const bool trains = key == "seed" || (decides_learning(key) && !is_across(key));
    const bool same_rows = key == "layout" && reference.layout.global_batch() == cell.layout.global_batch();
    if (!trains || same_rows) continue;
    differences.push_back({key, text_of(field->of(reference)), text_of(field->of(cell)),
                           std::ranges::find(declared, key) != declared.end()});
  }
  return differences;
}

std::vector<ConfigDifference> config_differences(const ConfigPair& configs) {
  if (!configs.both_known()) return {};
  return config_differences(*configs.reference, *configs.cell, configs.declared);
}

std::string differences_text(std::span<const ConfigDifference> differences) {
  std::string text;
  for (const ConfigDifference& it : differences) {
    const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
    text += fmt::format("{}{} {} / {}", text.empty() ? "" : ", ", it.key, shown(it.reference), shown(it.cell));
  }
  return text;
}

}  // namespace lockstep
