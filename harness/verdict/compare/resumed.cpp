#include "harness/verdict/compare/resumed.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "harness/verdict/compare/step_records.h"

namespace lockstep {
namespace {

/// The first step that a run made, and what it began with.
struct Begin {
  StepOfRun step;
  KnownState state;
};

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
  return Begin{*std::move(step), std::move(state)};
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
    if (step->step >= 0) take(state_before(*step, before), step->step);
    if (step->step == begin.step.step && state_before(*step, before)) found.same = step;
    before = std::move(step);
  }
  if (before && before->step >= 0) take(state_before({.step = before->step + 1, .ranks = {StepRecords{}}}, before), before->step + 1);
  return found;
}

}  // namespace

std::optional<CauseInputs> begins_with_other_weights(const std::string& reference_dir, const std::string& cell_dir) {
  constexpr double kNearer = 4, kRounding = 1e-6;
  const std::optional<Begin> begin = begin_of(cell_dir);
  if (!begin) return std::nullopt;
  Nearest nearest = nearest_in(reference_dir, *begin);
  if (!nearest.same || nearest.step < 0 || nearest.same_gap <= kRounding || nearest.same_gap < kNearer * nearest.gap) return std::nullopt;
  CauseInputs inputs;
  inputs.difference = difference_at(begin->step.step, Phase::snapshot, kAllRanks, "weights", DivergenceKind::value, fmt::format("those with which the reference begins step {}", begin->step.step),
                                    fmt::format("weights {} from them, by their size, and {} from those of step {}", short_number(nearest.same_gap), short_number(nearest.gap), nearest.step),
                                    static_cast<int>(begin->step.ranks.size()));
  inputs.reference = std::move(nearest.same);
  inputs.cell = begin->step;
  return inputs;
}

}  // namespace lockstep
