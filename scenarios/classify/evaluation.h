#pragma once
// How well the model classifies data that it was not trained on.

#include <map>
#include <string>

#include "harness/trainers/core/task.h"
#include "scenarios/classify/data.h"
#include "scenarios/classify/model.h"
#include "scenarios/classify/norm.h"

namespace lockstep {

struct ClassScores {
  double accuracy = 0;       ///< share of the series whose class has the largest sum of log-probabilities
  double step_accuracy = 0;  ///< share of the valid time steps whose class is the likeliest
  double cross_entropy = 0;  ///< mean over valid time steps, nats, without label smoothing
};

/// Ties count against the class. log_p_NTK: [N, T, K] of the crops. Zeros if there is no crop.
ClassScores score_classes(const at::Tensor& log_p_NTK, const CropTensors& crops);

/// accuracy, step_accuracy and cross_entropy of the test part; at the end of a run the number of classes too, and
/// holdout_step_accuracy and holdout_cross_entropy of the held-out series, if there are any. norm: or null.
std::map<std::string, double> evaluate_classifier(const Classifier& model, const BatchNorm* norm,
                                                  const ClassifyData& data, Evaluation kind, const Heartbeat& heartbeat);

}  // namespace lockstep
