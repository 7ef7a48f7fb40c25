#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"
#include "scenarios/classify/spec.h"

// A classifier of time series that answers at every time step from what it has seen so far.
//
// B = rows, T = time steps, C = channels, D = width, W = hidden width, K = classes.

namespace lockstep {

struct ClassifierShape {
  int64_t steps = 24;        ///< T, the most
  int64_t channels = 6;      ///< C
  int64_t classes = 4;       ///< K
  int64_t width = 32;        ///< D
  int64_t hidden = 64;       ///< W
  bool normalised = false;   ///< features are normalised: their bias is the normalisation's
  bool reconstructs = false; ///< a second head gives each time step's values back
};

/// [B, W]: factors on the hidden layer; undefined: none. `again`: for the same layer, which the backward pass computes once more.
using DropoutFactors = std::function<at::Tensor(bool again)>;

/// Features of the last few time steps; beside them their mean so far; one hidden layer; classes. Nothing looks
/// ahead, so padding behind a row's valid steps changes none of them.
class Classifier {
 public:
  /// Parameters are drawn from a generator seeded with `seed`, in their order, each uniform in +-1/sqrt(fan_in);
  /// drawn as float32 at any `dtype`.
  Classifier(const ClassifierShape& shape, int64_t seed, at::ScalarType dtype = at::kFloat);

  ParameterList& parameters() { return parameters_; }
  const ClassifierShape& shape() const { return shape_; }
  at::ScalarType dtype() const { return dtype_; }
  /// A view of this model that reads its parameters cast to `dtype` and computes in it; gradients come back
  /// through the casts in the parameters' own type.
  Classifier cast(at::ScalarType dtype) const;

  /// [B, T, C] -> [B, T, D], before their normalisation or nonlinearity. A step's features are of the time steps
  /// up to kWindow - 1 before it, zeros before the first.
  at::Tensor features(const at::Tensor& values_BTC) const;
  /// Scale and offset of normalised features, [D] each; undefined without a normalisation.
  const at::Tensor& norm_weight() const { return norm_w_; }
  const at::Tensor& norm_bias() const { return norm_b_; }
  /// [B, T, D] -> [B, T, W]. dropout_BW: factors on the layer; undefined: none.
  at::Tensor hidden(const at::Tensor& features_BTD, const at::Tensor& dropout_BW) const;
  /// The same bits and gradients, of which the features alone are kept for the backward pass.
  at::Tensor recomputed_hidden(const at::Tensor& features_BTD, DropoutFactors dropout) const;
  /// [B, T, W] -> [B, T, K].
  at::Tensor logits(const at::Tensor& hidden_BTW) const;
  /// [B, T, W] -> [B, T, C]; of a shape that reconstructs.
  at::Tensor reconstruction(const at::Tensor& hidden_BTW) const;

  static constexpr int64_t kWindow = ClassifierConfig::kWindow;

 private:
  at::Tensor draw(const std::string& name, at::IntArrayRef shape, int64_t fan_in, at::Generator& generator);

  ClassifierShape shape_;
  at::ScalarType dtype_;
  ParameterList parameters_;
  at::Tensor encoder_w_, encoder_b_, norm_w_, norm_b_, mixer_w_, mixer_b_, classes_w_, classes_b_, decoder_w_, decoder_b_;
  at::Tensor mean_so_far_TT_;
};

// Crops as tensors, shared by all replicas of a run.
//
// N = crops, B = rows, T = time steps, C = channels.

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

}  // namespace lockstep
