#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/compare/forced/values.h"
#include "harness/verdict/evidence/run_evidence.h"

// The optimizer's update of one step, recomputed in double from what the traces hold.

namespace lockstep {

/// What an update is made from: the state before it, the reduced gradients, their norm, the rate and the
/// hyperparameters. All must outlive it.
struct UpdateInputs {
  const Snapshot& state;
  const std::vector<NamedTensor>& gradients;
  double gradient_norm = 0, learning_rate = 0;
  const UpdateFacts& facts;
  double clip_norm = 0;  ///< 0: gradients are taken as they are
};

/// Those of a run's step: from the gradients that the optimizer took where they are recorded, else from the reduced
/// ones, to be clipped. Nothing where rate or optimizer are not known, or the norm to clip by.
std::optional<UpdateInputs> update_inputs(const Snapshot& state, const ForcedValues& values,
                                          const TrainingFacts& facts);

/// The recorded norm of the reduced gradients, or else their norm.
double reduced_norm(const ForcedValues& values);
/// Is that the whole gradient's? A norm of what may be shards is none.
bool knows_norm(const ForcedValues& values);

/// The update as it should be, or with one thing changed: how mistakes are recognised.
struct UpdateVariant {
  double decay = 1;             ///< times the configured weight decay
  bool other_coupling = false;  ///< AdamW's decay in the gradient, or Adam's beside it
  bool zero_moments = false, zero_count = false;
  int count_ahead = 0;  ///< updates that the optimizer counts beyond those that it made
  std::optional<double> clip = {};  ///< factor on the gradients instead of the configured one
  std::optional<double> rate = {};  ///< instead of the recorded one
  std::optional<double> rate_factor = {}, weight_decay = {};  ///< instead of the parameter's own
};

/// The factor that clipping to clip_norm puts on gradients of that norm; 1 without clipping (0).
double clip_factor(double clip_norm, double gradient_norm);

/// A parameter after the update, and what rounding in the arithmetic of `epsilon` may change in each element.
struct PredictedTensor {
  std::vector<double> values, allowance;
};

/// Nothing if state or gradient lack the tensor, or an optimizer's moment is missing.
std::optional<PredictedTensor> predict_update(const UpdateInputs& inputs, const std::string& name,
                                              const UpdateVariant& variant = {});

struct UpdateUse {
  std::string name;
  double used = 0;                  ///< largest difference of an element over its allowance
  double expected = 0, actual = 0;  ///< norms of the parameter's change
};

/// Every parameter whose update can be predicted, against its recorded values.
std::vector<UpdateUse> judge_update(const UpdateInputs& inputs, const std::vector<NamedTensor>& parameters,
                                    const UpdateVariant& variant = {});

}  // namespace lockstep
