#pragma once
// SGD, Adam and AdamW in the arithmetic of Python's torch.optim (single-tensor form), bit for bit; and
// clipping.

#include <ATen/core/Tensor.h>

#include <vector>

#include "harness/trainers/core/task.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// torch::optim::Adam does not give Python's bits (it differs at the second step); this does.
class Optimizer {
 public:
  Optimizer(const RunConfig& config, const ParameterList& parameters);

  /// One update from the parameters' gradients at learning rate `lr`. Every parameter must have a gradient.
  void step(double lr);

  /// Moments by parameter; undefined tensors where there is none (yet). Faults and snapshots reach them.
  std::vector<at::Tensor>& first_moments() { return first_moments_; }
  std::vector<at::Tensor>& second_moments() { return second_moments_; }
  int64_t& updates() { return updates_; }
  RunConfig& config() { return config_; }

 private:
  void sgd(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr);
  void adam(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr);

  RunConfig config_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> first_moments_, second_moments_;
  int64_t updates_ = 0;
};

/// L2 norm of all gradients together, as torch.nn.utils.get_total_norm computes it. [] float32.
at::Tensor total_gradient_norm(const std::vector<at::Tensor>& parameters);

/// torch.nn.utils.clip_grad_norm_ with a norm that is known already.
void clip_gradients(const std::vector<at::Tensor>& parameters, const at::Tensor& total_norm, double max_norm);

}  // namespace lockstep
