#include "harness/verdict/causes/mechanism.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "harness/verdict/causes/cause.h"
#include "harness/verdict/evidence/replays_beside.h"

namespace lockstep {
namespace {

/// `replays`: null where there are none.
Mechanism named(Comparison comparison, const std::vector<ConfigDifference>& differences, const ReplaysBeside* replays = nullptr) {
  Mechanism& mechanism = comparison.mechanism;
  if (comparison.around) {
    if (replays && !replays->cell_rows.empty())
      comparison.around->rows = rows_apart(replays->reference_rows, replays->cell_rows, comparison.around->difference.divergence.step);
    comparison.around->config_differences = differences;
    // What one header alone declares is not known to differ: told, and no cause.
    std::erase_if(comparison.around->config_differences, [](const ConfigDifference& each) { return each.reference == kNotDeclared || each.cell == kNotDeclared; });
    mechanism.cause = name_cause(*comparison.around);
  }
  return std::move(mechanism);
}

/// What is configured otherwise comes first, whatever the verdict.
Mechanism with_differences(Mechanism mechanism, const std::vector<ConfigDifference>& differences) {
  if (!differences.empty()) mechanism.sentence = fmt::format("Configs differ in {}. {}", differences_text(differences), mechanism.sentence);
  return mechanism;
}

/// A difference of runs that are not at the same bits counts only if a closed form explains it.
bool is_explained(const CauseInputs& inputs) {
  constexpr double kCertain = 0.9;
  const auto cause = name_cause(inputs);
  if (!cause || cause->code == "unexplained") return false;
  // One factor on all of several tensors is unlike anything that rounding grows into, though many mistakes have one.
  const bool of_all = cause->code == "constant-factor" && inputs.forced && inputs.forced->reference.gradients.size() > 1;
  return of_all || cause->confidence >= kCertain;
}

}  // namespace

namespace {

ForcedInputs inputs_of(const ReplaysBeside& replays, const CompareOptions& options) {
  ForcedInputs inputs;
  inputs.reference_free = options.run_a;
  inputs.cell_free = options.run_b;
  inputs.forced_reference = replays.reference;
  inputs.forced_cell = replays.cell;
  inputs.reference_twin = replays.reference_twin;
  inputs.cell_twin = replays.cell_twin;
  inputs.forced_repeats = replays.repeats;
  inputs.steps = inputs.forced_steps = options.steps;
  return inputs;
}

/// What the runs' own traces leave open is decided by replays of the reference's steps; what either shows first counts.
Mechanism by_replays(Mechanism free, Mechanism forced) {
  const bool parted = free.verdict == VerdictKind::divergent;
  if (forced.verdict == VerdictKind::divergent) {
    return !parted || forced.first_divergence->step < free.first_divergence->step ? std::move(forced) : std::move(free);
  }
  if (parted || forced.verdict != VerdictKind::within_envelope) return free;
  if (!free.sentence.empty()) forced.sentence += " In the runs themselves:" + free.sentence;
  return forced;
}

}  // namespace

Mechanism compare_runs(const CompareOptions& options) {
  CompareOptions asking = options;
  asking.explains = is_explained;
  const bool alone = !options.reference_config && !options.cell_config && options.repeats.empty();
  const std::optional<ReplaysBeside> replays = alone ? replays_beside(options.run_a, options.run_b) : std::nullopt;
  asking.replayed = replays.has_value();
  Comparison free = compare_traces(asking);
  const bool is_open = free.mechanism.verdict != VerdictKind::identical && free.mechanism.verdict != VerdictKind::within_envelope;
  const std::vector<ConfigDifference> differences = differences_of(options);
  const ReplaysBeside* beside = replays ? &*replays : nullptr;
  Mechanism mechanism = named(std::move(free), differences, beside);
  if (replays && is_open) mechanism = by_replays(std::move(mechanism), named(compare_forced(inputs_of(*replays, options)), differences, beside));
  return with_differences(std::move(mechanism), differences);
}

Mechanism judge_forced(const ForcedInputs& inputs) {
  if (!inputs.forced_reference.empty()) {
    const std::vector<ConfigDifference> differences = config_differences(inputs.configs());
    return with_differences(named(compare_forced(inputs), differences), differences);
  }
  CompareOptions free;
  free.run_a = inputs.reference_free;
  free.run_b = inputs.cell_free;
  free.steps = inputs.steps;
  return compare_runs(free);
}

}  // namespace lockstep
