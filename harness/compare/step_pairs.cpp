#include "harness/compare/step_pairs.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

/// Has rank 0 recorded parameters and the optimizer's state, and nothing of a step that it made?
bool is_state_alone(const StepOfRun& step) {
  return std::ranges::none_of(step.ranks[0].records, [](const Record& record) {
    return record.phase == Phase::samples || record.phase == Phase::local_gradients ||
           record.phase == Phase::reduced_gradients || record.phase == Phase::loss;
  });
}

}  // namespace

bool StepPairs::next() {
  if (missing_step_) return false;
  before_a_ = std::move(step_a_);
  before_b_ = std::move(step_b_);
  step_a_ = a_.next();
  step_b_ = b_.next();
  if (!begun_) begin_together();
  if (!step_a_ || !step_b_) return false;
  begun_ = true;
  if (step_a_->step == step_b_->step) {
    if (step_a_->step >= 0) ++compared_;  // What comes before the first step (initial parameters) is no step.
    return true;
  }
  const bool b_skips = step_a_->step < step_b_->step;
  Divergence missing;
  missing.step = std::min(step_a_->step, step_b_->step);
  missing.phase = name_of(Phase::samples);
  missing.where = "the whole step";
  missing.kind = "missing";
  missing.expected = b_skips ? "recorded" : "nothing";
  missing.actual = b_skips ? "nothing" : "recorded";
  missing.sentence =
      fmt::format("They part at step {}: only {} recorded it.", missing.step, b_skips ? a_.dir() : b_.dir());
  missing_step_ = missing;
  return false;
}

void StepPairs::begin_together() {
  while (step_a_ && step_b_ && step_a_->step < step_b_->step) {
    before_a_ = std::move(step_a_);
    step_a_ = a_.next();
  }
  while (step_a_ && step_b_ && step_b_->step < step_a_->step) {
    before_b_ = std::move(step_b_);
    step_b_ = b_.next();
  }
  // What a resumed run wrote first may be the state that it begins with.
  if (step_a_ && step_b_ && step_a_->step == step_b_->step && is_state_alone(*step_a_) != is_state_alone(*step_b_)) {
    before_a_ = std::move(step_a_);
    before_b_ = std::move(step_b_);
    step_a_ = a_.next();
    step_b_ = b_.next();
  }
}

std::string StepPairs::ends() const {
  std::string text;
  for (const RunReader* run : {&a_, &b_}) {
    if (!run->end().empty()) text += (text.empty() ? "" : "; ") + run->end();
  }
  if (!text.empty() || missing_step_) return text;
  if (step_a_ && !step_b_) return fmt::format("{} ends here, and {} goes on", b_.dir(), a_.dir());
  if (step_b_ && !step_a_) return fmt::format("{} ends here, and {} goes on", a_.dir(), b_.dir());
  return text;
}

}  // namespace lockstep
