#include "harness/verdict/causes/mechanism.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "harness/verdict/causes/cause.h"

namespace lockstep {
namespace {

/// What is configured otherwise comes first, whatever the verdict.
Mechanism named(Comparison comparison, const std::vector<ConfigDifference>& differences) {
  Mechanism& mechanism = comparison.mechanism;
  if (comparison.around) {
    comparison.around->config_differences = differences;
    // What one header alone declares is not known to differ: told, and no cause.
    std::erase_if(comparison.around->config_differences, [](const ConfigDifference& each) { return each.reference == kNotDeclared || each.cell == kNotDeclared; });
    mechanism.cause = name_cause(*comparison.around);
  }
  if (!differences.empty()) {
    mechanism.sentence = fmt::format("Configs differ in {}. {}", differences_text(differences), mechanism.sentence);
  }
  return std::move(mechanism);
}

/// A difference of runs that are not at the same bits counts only if a closed form explains it.
bool is_explained(const CauseInputs& inputs) {
  constexpr double kCertain = 0.9;
  const auto cause = name_cause(inputs);
  return cause && cause->code != "unexplained" && cause->confidence >= kCertain;
}

}  // namespace

Mechanism compare_runs(const CompareOptions& options) {
  CompareOptions asking = options;
  asking.explains = is_explained;
  return named(compare_traces(asking), differences_of(options));
}

Mechanism judge_forced(const ForcedInputs& inputs) {
  if (!inputs.forced_reference.empty()) return named(compare_forced(inputs), config_differences(inputs.configs()));
  CompareOptions free;
  free.run_a = inputs.reference_free;
  free.run_b = inputs.cell_free;
  free.steps = inputs.steps;
  return compare_runs(free);
}

}  // namespace lockstep
