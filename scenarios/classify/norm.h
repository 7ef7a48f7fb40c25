#pragma once
// Batch normalisation of features over the valid time steps of a micro-step's rows.
//
// B = rows, T = time steps, D = features.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/model.h"

namespace lockstep {

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

}  // namespace lockstep
