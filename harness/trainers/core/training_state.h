#pragma once
// All that a run goes on from, put into the kinds of a checkpoint and taken out of them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/sampler_position.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/trainers/core/update.h"

namespace lockstep {

/// How a step and a place of the sampler's permutation become each other.
struct SamplerSteps {
  std::function<checkpoint::SamplerPosition(int64_t step)> position_at;  ///< before that step
  /// The inverse; sets `problem` where no step of this run begins there.
  std::function<int64_t(const checkpoint::SamplerPosition&, std::string& problem)> step_at;
};

/// What counts along with the steps. In a run that was never stopped, or that goes on as it should, all are one number:
/// the first step that is still to be trained.
struct StepCounters {
  int64_t rate = 0;     ///< at which the rule of the learning rate stands
  int64_t samples = 0;  ///< whose rows come next
  int64_t draws = 0;    ///< by which random draws are keyed
};

/// The best evaluation so far, as all ranks know it.
struct BestEvaluation {
  double value = 0;
  int64_t step = -1;  ///< -1: there was none
};

/// One rank's parts of a run that a checkpoint takes in, beside the trainer's own.
struct TrainingParts {
  const RankContext& context;
  Update& update;
  const SamplerSteps& sampler;
  StepCounters& counters;
  BestEvaluation& best;
  std::string best_metric;
  RankResult& result;  ///< its curves
};

/// The state before the step at which the counters stand. Tensors point into the trainer's own. `sharded`: of parameters
/// and moments this rank's even slices.
checkpoint::State training_state(const TrainingParts& parts, bool sharded);

/// Planted: a kind that is not put back, and no look at whether it was.
struct LeftOut {
  std::string kind;
  bool unchecked = false;
};

/// Puts a state that has been loaded into the run, and holds what stands in the run then against what was loaded. Throws
/// std::runtime_error naming the kind, what was expected and what was seen.
void restore(const TrainingParts& parts, const checkpoint::LoadOutcome& loaded, const LeftOut& left_out = {});

}  // namespace lockstep
