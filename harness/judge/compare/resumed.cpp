#include "harness/judge/compare/resumed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "harness/judge/compare/step_pairs.h"

namespace lockstep {
namespace {

bool is_moment(const std::string& name) { return name.starts_with("first_moment/") || name.starts_with("second_moment/"); }

/// The first step that a run made, and what it began with.
struct Begin {
  StepOfRun step;
  KnownState state;
  std::vector<std::string> without;  ///< moments that the step left, and that were 0 or not there when it began
};

/// Of moments whose values were not kept the statistics tell, or that they were recorded.
std::vector<std::string> moments_begun(const StepOfRun& step, const StepRecords& began, Phase phase) {
  std::vector<std::string> names;
  for (const Record* left : records_of(step.ranks[0], Phase::optimizer_state)) {
    if (!is_moment(left->name)) continue;
    const Record* before = find_record(began, phase, left->name);
    if (!before || (before->has_stats && before->stats.norm == 0 && before->stats.nonfinite == 0)) names.push_back(left->name);
  }
  return names;
}

/// Nothing of a run whose first step is the first of all.
std::optional<Begin> begin_of(const std::string& dir) {
  RunReader run(dir);
  std::optional<StepOfRun> before, step = run.next();
  // What a resumed run wrote first may be the state that it begins with.
  if (step && records_of(step->ranks[0], Phase::samples).empty() && records_of(step->ranks[0], Phase::loss).empty()) {
    before = std::move(step);
    step = run.next();
  }
  if (!step || step->step <= 0) return std::nullopt;
  KnownState state = state_before(*step, before);
  if (!state) return std::nullopt;
  const bool of_step = snapshot_of(step->ranks[0]) != nullptr;
  std::vector<std::string> without = of_step ? moments_begun(*step, step->ranks[0], Phase::snapshot) : moments_begun(*step, before->ranks[0], Phase::optimizer_state);
  return Begin{*std::move(step), std::move(state), std::move(without)};
}

/// How far the weights of two states are apart, whatever their size; nothing unless both hold the same tensors.
std::optional<double> apart(const KnownState& a, const KnownState& b) {
  const auto is_weight = [](const NamedTensor& tensor) { return tensor.name.find('/') == std::string::npos; };
  std::size_t weights = 0;
  for (const NamedTensor& own : b->tensors) {
    if (!is_weight(own)) continue;
    const NamedTensor* other = find_tensor(a->tensors, own.name);
    if (!other || other->values.size() != own.values.size()) return std::nullopt;
    ++weights;
  }
  return weights > 0 ? relative_distance(a, b) : std::nullopt;
}

/// The reference's step of the same number, and the step whose weights are nearest.
struct Nearest {
  std::optional<StepOfRun> same;
  KnownState same_state;
  double same_gap = 0;
  int64_t step = -1;
  double gap = 0;
};

Nearest nearest_in(const std::string& dir, const Begin& begin) {
  Nearest found;
  RunReader run(dir);
  std::optional<StepOfRun> before;
  const auto take = [&](const KnownState& state, int64_t step) {
    const auto gap = state ? apart(state, begin.state) : std::nullopt;
    if (!gap) return;
    if (step == begin.step.step) {
      found.same_gap = *gap;
    } else if (found.step < 0 || *gap < found.gap) {
      found.step = step;
      found.gap = *gap;
    }
  };
  while (std::optional<StepOfRun> step = run.next()) {
    const KnownState state = step->step >= 0 ? state_before(*step, before) : nullptr;
    take(state, step->step);
    if (state && step->step == begin.step.step) {
      found.same_state = state;
      found.same = step;
    }
    before = std::move(step);
  }
  if (before && before->step >= 0) take(state_before({.step = before->step + 1, .ranks = {StepRecords{}}}, before), before->step + 1);
  return found;
}

bool keeps_moments(const KnownState& state) { return std::ranges::any_of(state->tensors, is_moment, &NamedTensor::name); }

bool has_moments_beside_0(const KnownState& state) {
  return std::ranges::any_of(state->tensors, [](const NamedTensor& tensor) { return is_moment(tensor.name) && norm(tensor.values) > 0; });
}

/// A tensor that is far from the reference's of the step, where most are as near to it as rounding and training leave them.
struct Stranger {
  std::string name;
  double gap = 0, middle = 0;  ///< relative to its size; of the tensor in the middle of all
};

std::optional<Stranger> stranger_in(const KnownState& reference, const KnownState& state) {
  constexpr double kFar = 0.25, kTimesFarther = 1000;
  constexpr std::size_t kFewest = 4;
  std::vector<double> gaps;
  Stranger worst;
  for (const NamedTensor& own : state->tensors) {
    const NamedTensor* expected = own.name.find('/') == std::string::npos ? find_tensor(reference->tensors, own.name) : nullptr;
    if (!expected || expected->values.size() != own.values.size() || norm(expected->values) == 0) continue;
    gaps.push_back(distance(own.values, expected->values) / norm(expected->values));
    if (gaps.back() > worst.gap) worst = {own.name, gaps.back(), 0};
  }
  if (gaps.size() < kFewest) return std::nullopt;
  std::ranges::sort(gaps);
  worst.middle = gaps[gaps.size() / 2];
  return worst.gap >= kFar && worst.gap >= kTimesFarther * worst.middle ? std::optional(worst) : std::nullopt;
}

CauseInputs part_at(Nearest nearest, const Begin& begin, const std::string& where, const std::string& expected, const std::string& found) {
  CauseInputs inputs;
  inputs.difference =
      difference_at(begin.step, Phase::snapshot, kAllRanks, where, DivergenceKind::value, expected, found);
  inputs.reference = std::move(nearest.same);
  inputs.cell = begin.step;
  return inputs;
}

}  // namespace

std::optional<Difference> judge_lost_moments(ForcedContext& context) {
  const KnownState& now = context.evidence.state;
  if (!context.step.before_b || context.step.before_b->step != context.b.step - 1 || !now ||
      records_of(context.b.ranks[0], Phase::snapshot).empty())
    return std::nullopt;
  const auto has_left = [](const Record* record) { return is_moment(record->name) && record->has_stats && record->stats.norm > 0; };
  if (has_moments_beside_0(now) ||
      std::ranges::none_of(records_of(context.step.before_b->ranks[0], Phase::optimizer_state), has_left))
    return std::nullopt;
  return difference_at(context.b, Phase::snapshot, kAllRanks, kMoments, DivergenceKind::value,
                       "moments of the updates before", keeps_moments(now) ? "moments of 0" : "none");
}

std::optional<CauseInputs> begins_elsewhere(const std::string& reference_dir, const std::string& cell_dir) {
  constexpr double kNearer = 4, kRounding = 1e-6;
  const std::optional<Begin> begin = begin_of(cell_dir);
  if (!begin) return std::nullopt;
  Nearest nearest = nearest_in(reference_dir, *begin);
  if (!nearest.same) return std::nullopt;
  const std::string those = fmt::format("those with which the reference begins step {}", begin->step.step);
  if (nearest.step >= 0 && nearest.same_gap > kRounding && nearest.same_gap >= kNearer * nearest.gap) {
    const std::string found = fmt::format("weights {} from them, by their size, and {} from those of step {}", short_number(nearest.same_gap), short_number(nearest.gap), nearest.step);
    return part_at(std::move(nearest), *begin, "weights", those, found);
  }
  if (const auto stranger = stranger_in(nearest.same_state, begin->state)) {
    const std::string found = fmt::format("weights {} from them, by their size, where the tensor in the middle of all is {}", short_number(stranger->gap), short_number(stranger->middle));
    return part_at(std::move(nearest), *begin, stranger->name, those, found);
  }
  // A tracer finds moments in an optimizer that has made them: before its first update there are none.
  std::vector<std::string> lost;
  std::size_t all = 0;
  for (const NamedTensor& tensor : nearest.same_state->tensors) {
    if (!is_moment(tensor.name) || norm(tensor.values) == 0) continue;
    ++all;
    if (std::ranges::find(begin->without, tensor.name) != begin->without.end()) lost.push_back(tensor.name);
  }
  if (lost.empty()) return std::nullopt;
  const std::string found = lost.size() == all ? "moments of 0" : fmt::format("moments of 0 in {} of {}: {}", lost.size(), counted(static_cast<int64_t>(all), "tensor"), fmt::join(lost, ", "));
  return part_at(std::move(nearest), *begin, kMoments, "moments of the updates before", found);
}

}  // namespace lockstep
