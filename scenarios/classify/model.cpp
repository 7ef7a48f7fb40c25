#include "scenarios/classify/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>

#include "losses/infonce.h"

namespace lockstep {

at::Tensor Classifier::draw(const std::string& name, at::IntArrayRef shape, int64_t fan_in,
                            at::Generator& generator) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return parameters_.add(name, at::empty(shape, at::kFloat).uniform_(-bound, bound, generator).to(dtype_));
}

Classifier::Classifier(const ClassifierShape& shape, int64_t seed, at::ScalarType dtype)
    : shape_(shape), dtype_(dtype) {
  const c10::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  const int64_t seen = shape.channels * kWindow, d = shape.width, w = shape.hidden;
  encoder_w_ = draw("encoder.weight", {d, seen}, seen, generator);
  if (shape.normalised) {
    norm_w_ = parameters_.add("norm.weight", at::ones({d}, dtype));
    norm_b_ = parameters_.add("norm.bias", at::zeros({d}, dtype));
  } else {
    encoder_b_ = draw("encoder.bias", {d}, seen, generator);
  }
  mixer_w_ = draw("mixer.weight", {w, 2 * d}, 2 * d, generator);
  mixer_b_ = draw("mixer.bias", {w}, 2 * d, generator);
  classes_w_ = draw("classes.weight", {shape.classes, w}, w, generator);
  classes_b_ = draw("classes.bias", {shape.classes}, w, generator);
  if (shape.reconstructs) {
    decoder_w_ = draw("decoder.weight", {shape.channels, w}, w, generator);
    decoder_b_ = draw("decoder.bias", {shape.channels}, w, generator);
  }
  const at::Tensor so_far_TT = at::ones({shape.steps, shape.steps}, dtype).tril();
  mean_so_far_TT_ = so_far_TT / so_far_TT.sum(1, true);
}

Classifier Classifier::cast(at::ScalarType dtype) const {
  Classifier view = *this;
  view.dtype_ = dtype;
  for (at::Tensor* tensor : {&view.encoder_w_, &view.encoder_b_, &view.norm_w_, &view.norm_b_, &view.mixer_w_,
                             &view.mixer_b_, &view.classes_w_, &view.classes_b_, &view.decoder_w_, &view.decoder_b_,
                             &view.mean_so_far_TT_}) {
    if (tensor->defined()) {
      *tensor = tensor->to(dtype);
    }
  }
  return view;
}

at::Tensor Classifier::features(const at::Tensor& values_BTC) const {
  const at::Tensor padded = at::constant_pad_nd(values_BTC.to(dtype_), {0, 0, kWindow - 1, 0});
  const at::Tensor seen = padded.unfold(1, kWindow, 1).flatten(2);
  return at::linear(seen, encoder_w_, encoder_b_);
}

namespace {

/// The hidden layer: activation of a linear map of each step's features and of their mean so far.
struct HiddenLayer {
  at::Tensor mean_TT, weight, bias;

  at::Tensor of(const at::Tensor& features_BTD, const at::Tensor& dropout_BW) const {
    const at::Tensor feature_BTD = at::tanh(features_BTD);
    const at::Tensor both = at::cat({feature_BTD, at::matmul(mean_TT, feature_BTD)}, 2);
    const at::Tensor hidden_BTW = at::silu(at::linear(both, weight, bias));
    return dropout_BW.defined() ? hidden_BTW * dropout_BW.unsqueeze(1) : hidden_BTW;
  }
};

}  // namespace

at::Tensor Classifier::hidden(const at::Tensor& features_BTD, const at::Tensor& dropout_BW) const {
  const int64_t steps = features_BTD.size(1);
  return HiddenLayer{mean_so_far_TT_.narrow(0, 0, steps).narrow(1, 0, steps), mixer_w_, mixer_b_}.of(features_BTD, dropout_BW);
}

at::Tensor Classifier::recomputed_hidden(const at::Tensor& features_BTD, DropoutFactors dropout) const {
  const int64_t steps = features_BTD.size(1);
  const at::Tensor mean_TT = mean_so_far_TT_.narrow(0, 0, steps).narrow(1, 0, steps);
  const auto piece = [mean_TT, dropout = std::move(dropout)](const std::vector<at::Tensor>& inputs, bool again) {
    return std::vector<at::Tensor>{HiddenLayer{mean_TT, inputs[1], inputs[2]}.of(inputs[0], dropout(again))};
  };
  return recomputed(piece, {features_BTD}, {mixer_w_, mixer_b_}).front();
}

at::Tensor Classifier::logits(const at::Tensor& hidden_BTW) const { return at::linear(hidden_BTW, classes_w_, classes_b_); }

at::Tensor Classifier::reconstruction(const at::Tensor& hidden_BTW) const {
  return at::linear(hidden_BTW, decoder_w_, decoder_b_);
}

}  // namespace lockstep
