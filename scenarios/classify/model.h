#pragma once
// A classifier of time series that answers at every time step from what it has seen so far.
//
// B = rows, T = time steps, C = channels, D = width, W = hidden width, K = classes.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/trainers/core/task.h"
#include "scenarios/classify/config.h"

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

}  // namespace lockstep
