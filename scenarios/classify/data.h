#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/crops.h"
#include "scenarios/classify/model.h"

// Crops as tensors, shared by all replicas of a run.
//
// N = crops, B = rows, T = time steps, C = channels.

namespace lockstep {

struct CropTensors {
  at::Tensor values_NTC;  ///< float32, standardised; 0 where a step is not valid
  at::Tensor valid_NT;    ///< bool
  at::Tensor label_N;     ///< int64
  std::vector<int64_t> valid_steps, series;  ///< [N]
  int64_t size() const { return label_N.size(0); }
  /// Row r is crop ids[r].
  CropTensors rows(std::span<const int64_t> ids) const;
};

struct ClassifyData {
  CropTensors train, holdout, test;
  int64_t classes = 0, channels = 0, steps = 0;
};

ClassifyData make_classify_data(const CropDataset& dataset);

// Batch normalisation of features over the valid time steps of a micro-step's rows.
//
// B = rows, T = time steps, D = features.

/// Rows that share their statistics, where one process stands for several ranks.
struct NormGroups {
  at::Tensor group_B;       ///< int64; undefined: one group
  int64_t of_rank_0 = 0;    ///< rank 0 has the statistics of the groups below this number
};

class BatchNorm {
 public:
  BatchNorm(NormKind kind, int64_t width, at::ScalarType dtype);

  /// Normalised by the statistics of the valid steps: those of this rank's rows (batch), or of all ranks' rows,
  /// with the gradient that flows through them (sync_batch, collective in both passes: "norm.sums",
  /// "norm.squares" and the same with ".backward"). A rank without a valid step has no statistics of
  /// its own, and nothing to normalise.
  at::Tensor train(const Classifier& model, Comm& comm, const at::Tensor& features_BTD, const at::Tensor& valid_BT,
                   const NormGroups& groups);
  /// Normalised by the running statistics.
  at::Tensor evaluate(const Classifier& model, const at::Tensor& features_BTD) const;

  /// Running statistics take up those of `train` since the last time, as PyTorch does (momentum 0.1, unbiased
  /// variance): rank 0's, which the others get from it ("norm.buffers"), as DistributedDataParallel broadcasts
  /// buffers. Collective with several ranks.
  void update_running(Comm& comm);
  std::vector<NamedBuffer> buffers() const;
  /// 2-norm of the means that the last call of `train` normalised by: equal on ranks that share them.
  double last_mean_norm() const { return last_mean_norm_; }

 private:
  at::Tensor normalised(const Classifier& model, const at::Tensor& features_BTD, const at::Tensor& mean,
                        const at::Tensor& variance) const;

  struct Seen {
    at::Tensor mean_D, variance_D;
  };
  void take_up(const at::Tensor& mean_D, const at::Tensor& variance_D, double steps);

  NormKind kind_;
  at::Tensor running_mean_D_, running_variance_D_;
  std::vector<Seen> seen_;  ///< by the passes since the last update
  double last_mean_norm_ = 0;
};

// How well the model classifies data that it was not trained on.

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
