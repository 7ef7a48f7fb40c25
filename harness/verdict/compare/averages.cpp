#include "harness/verdict/compare/averages.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "harness/verdict/compare/step_pairs.h"
#include "harness/verdict/trace/record.h"

namespace lockstep {
namespace {

/// One average with what it is made of: old average, new average, parameter.
struct Average {
  std::string name;
  double epsilon = 0;
  std::vector<double> old, now, parameter;
};

std::optional<std::vector<double>> values_in(const StepOfRun& step, Phase phase, const std::string& name) {
  const Record* record = find_record(step.ranks[0], phase, name);
  return record && is_floating(record->dtype) ? values_of(*record) : std::nullopt;
}

std::optional<std::vector<double>> values_of_state(const Snapshot* state, const std::string& name) {
  const NamedTensor* tensor = state ? find_tensor(state->tensors, name) : nullptr;
  return tensor ? std::optional(tensor->values) : std::nullopt;
}

std::vector<Average> averages_of(const AveragedStep& at, bool parameters_before) {
  const StepOfRun* before = at.before && at.before->step == at.step.step - 1 ? at.before : nullptr;
  std::vector<Average> all;
  for (const Record* record : records_of(at.step.ranks[0], Phase::averaged_weights)) {
    auto old = values_of_state(at.state, "average/" + record->name), was = values_of_state(at.state, record->name);
    if (!old && before) old = values_in(*before, Phase::averaged_weights, record->name);
    if (!was && before) was = values_in(*before, Phase::parameters, record->name);
    // Before the first step an average that nobody recorded is the parameter's copy.
    if (!old && before && before->step < 0) old = was;
    const auto now = values_of(*record), parameter = parameters_before ? was : values_in(at.step, Phase::parameters, record->name);
    if (now && old && parameter && now->size() == old->size() && now->size() == parameter->size())
      all.push_back({record->name, epsilon_of(record->dtype), *old, *now, *parameter});
  }
  return all;
}

std::optional<AverageStep> fitted(const std::vector<Average>& averages, bool before, std::optional<double> decay) {
  double dot = 0, squares = 0;
  for (const Average& each : averages) {
    for (std::size_t i = 0; i < each.now.size(); ++i) {
      const double apart = each.old[i] - each.parameter[i];
      dot += (each.now[i] - each.parameter[i]) * apart;
      squares += apart * apart;
    }
  }
  if (!(squares > 0)) return std::nullopt;
  constexpr double kRoundings = 8;
  AverageStep step{"", decay.value_or(dot / squares), 0, before};
  for (const Average& each : averages) {
    double rest = 0, size = 0;
    for (std::size_t i = 0; i < each.now.size(); ++i) {
      const double gap = each.now[i] - each.parameter[i] - step.decay * (each.old[i] - each.parameter[i]);
      rest += gap * gap;
      size += each.old[i] * each.old[i] + each.parameter[i] * each.parameter[i] + each.now[i] * each.now[i];
    }
    const double residual = size > 0 ? std::sqrt(rest / size) / (kRoundings * each.epsilon) : 0;
    if (!(residual <= step.residual)) step.residual = residual, step.worst = each.name;
  }
  return step;
}

}  // namespace

std::optional<AverageStep> average_step(const AveragedStep& at, std::optional<double> decay) {
  auto after_update = fitted(averages_of(at, false), false, decay);
  auto before_update = fitted(averages_of(at, true), true, decay);
  if (!before_update || (after_update && after_update->residual <= before_update->residual)) return after_update;
  return before_update;
}

std::optional<Difference> averages_difference(const AveragedStep& a, const AveragedStep& b) {
  const auto reference = average_step(a);
  if (!reference || reference->residual > 1 || !(std::abs(reference->decay) <= 1)) return std::nullopt;
  const auto same = fitted(averages_of(b, reference->before), reference->before, reference->decay);
  // Where parameters hardly move, a decay is told by rounding alone.
  if (!same || same->residual <= 4) return std::nullopt;
  const auto own = average_step(b);
  std::string found = fmt::format("{} times as far from that as rounding goes", short_number(same->residual));
  if (own && own->residual <= 1) {
    found = own->before == reference->before
                ? fmt::format("{} times the old average and {} times the parameter", short_number(own->decay), short_number(1 - own->decay))
                : fmt::format("made of the parameters {} the update", own->before ? "before" : "after");
  }
  return difference_at(b.step.step, Phase::averaged_weights, kAllRanks, same->worst, DivergenceKind::update,
                       fmt::format("{} times the old average and {} times the parameter", short_number(reference->decay), short_number(1 - reference->decay)),
                       found, static_cast<int>(b.step.ranks.size()));
}

}  // namespace lockstep
