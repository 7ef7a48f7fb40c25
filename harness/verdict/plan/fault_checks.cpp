#include "harness/verdict/plan/fault_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/base/errors.h"
#include "harness/base/nearest.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/config/mutants.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

using Found = std::vector<std::pair<std::string, std::string>>;

/// "action_encoder" of "action_encoder.in.weight".
std::string group_of(const std::string& parameter) { return parameter.substr(0, parameter.find('.')); }

/// Names of parameters; with `groups` also what stands before each dot, by which a group is named.
std::vector<std::string> names_of(const std::vector<ModelParameter>& parameters, bool groups) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const ModelParameter& parameter : parameters) {
    const std::string& name = parameter.name;
    std::size_t dot = groups ? name.find('.') : std::string::npos;
    for (; dot != std::string::npos; dot = name.find('.', dot + 1)) add(name.substr(0, dot));
    add(name);
  }
  return names;
}

/// "; did you mean X?", or where nothing is near the groups that there are.
std::string suggestion(const std::string& word, const std::vector<ModelParameter>& parameters, bool groups) {
  const std::vector<std::string> names = names_of(parameters, groups);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view near = nearest(word, views);
  if (!near.empty()) return fmt::format("; did you mean {}?", near);
  std::vector<std::string> beginnings;
  for (const ModelParameter& parameter : parameters) {
    if (beginnings.empty() || beginnings.back() != group_of(parameter.name)) {
      beginnings.push_back(group_of(parameter.name));
    }
  }
  return fmt::format("; names begin with {}", fmt::join(beginnings, ", "));
}

/// A bug of another trainer's parts would find none of them.
void check_trainer(const RunConfig& config, const MutantConfig& mutant, const std::string& key,
                   Found& found) {
  const MutantEntry* entry = find_mutant(mutant.name);
  if (entry == nullptr || entry->trainer.empty() || entry->trainer == config.trainer) return;
  found.emplace_back(
      key + ".name",
      fmt::format("{0}.name {1} is a fault of trainer {2}, and trainer is {3}: set trainer to {2}, or choose a "
                  "mutant that `lockstep list mutants` shows without a trainer, or with {3}",
                  key, mutant.name, entry->trainer, config.trainer));
}

void check_tensor(const RunConfig& config, const MutantConfig& mutant, const std::string& key, Found& found) {
  const MutantEntry* entry = find_mutant(mutant.name);
  if (mutant.tensor.empty() || entry == nullptr) return;
  if (entry->tensor == MutantTensor::none) {
    found.emplace_back(
        key + ".tensor",
        fmt::format("{}.tensor has no effect: {} does not act on a chosen parameter", key, mutant.name));
    return;
  }
  const bool groups = entry->tensor == MutantTensor::group;
  // How many channels the data have changes the shapes, not the names.
  const std::vector<ModelParameter> parameters = spec_of(config).parameters(config, config.data.channels);
  const auto meant = [&](const ModelParameter& parameter) {
    return groups ? parameter.name.starts_with(mutant.tensor) : parameter.name == mutant.tensor;
  };
  if (std::any_of(parameters.begin(), parameters.end(), meant)) return;
  found.emplace_back(key + ".tensor", fmt::format("{}.tensor {} is no parameter{} of the model{}", key,
                                                  in_quotes(mutant.tensor), groups ? " or group" : "",
                                                  suggestion(mutant.tensor, parameters, groups)));
}

void check_fault(const RunConfig& config, const MutantConfig& mutant, const std::string& key, Found& found) {
  if (mutant.name == "none") return;
  check_trainer(config, mutant, key, found);
  const int world = config.layout.world_size;
  if (mutant.rank >= world) {
    found.emplace_back(key + ".rank",
                       fmt::format("{}.rank is {}; {} ranks are numbered 0 to {}",
                                   key, mutant.rank, world, world - 1));
  }
  const int64_t end = config.stop_after > 0 ? std::min(config.stop_after, config.steps) : config.steps;
  if (mutant.step >= end) {
    found.emplace_back(key + ".step",
                       fmt::format("{}.step {} is never reached in {} steps", key, mutant.step, end));
  }
  if (mutant.name == "grad_scale" && mutant.factor == 1.0) {
    found.emplace_back(key + ".factor", fmt::format("grad_scale with {}.factor 1 has no effect", key));
  }
  check_tensor(config, mutant, key, found);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> fault_problems(const RunConfig& config) {
  Found found;
  check_fault(config, config.mutant, "mutant", found);
  check_fault(config, config.second_mutant, "second_mutant", found);
  return found;
}

std::string idle_fault_words(const MutantConfig& mutant, const std::string& key, const RunConfig& config) {
  std::string where = fmt::format("from step {} on {}", mutant.step,
                                  mutant.rank < 0 ? "all ranks" : fmt::format("rank {}", mutant.rank));
  if (!mutant.tensor.empty()) where += ", " + mutant.tensor;
  std::string text = fmt::format(
      "the planted fault {} ({}) never acted: in {} steps it changed nothing on any of {} ranks, so the "
      "comparison says nothing about it. Choose a step, a rank and a parameter that the run reaches",
      mutant.name, where, steps_to_run(config), config.layout.world_size);
  const MutantEntry* entry = find_mutant(mutant.name);
  if (entry != nullptr && !entry->settings.empty()) {
    text += fmt::format("; {} shows with {}", key, entry->settings);
  }
  return text;
}

}  // namespace lockstep
