#include "harness/trainers/core/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

namespace lockstep {

Optimizer::Optimizer(const RunConfig& config, const ParameterList& parameters)
    : config_(config),
      parameters_(parameters.tensors),
      first_moments_(parameters_.size()),
      second_moments_(parameters_.size()) {
  if (config.optimizer != OptimizerKind::sgd) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      first_moments_[i] = at::zeros_like(parameters_[i].detach());
      second_moments_[i] = at::zeros_like(parameters_[i].detach());
    }
  }
}

void Optimizer::step(double lr) {
  const c10::NoGradGuard no_grad;
  ++updates_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor parameter = parameters_[i].detach();
    if (config_.optimizer == OptimizerKind::sgd) {
      sgd(parameter, parameters_[i].grad(), i, lr);
    } else {
      adam(parameter, parameters_[i].grad(), i, lr);
    }
  }
}

void Optimizer::sgd(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr) {
  if (config_.weight_decay != 0) {
    gradient = gradient.add(parameter, config_.weight_decay);
  }
  if (config_.momentum != 0) {
    if (!first_moments_[index].defined()) {
      first_moments_[index] = gradient.clone();
    } else {
      first_moments_[index].mul_(config_.momentum).add_(gradient, 1.0);
    }
    gradient = first_moments_[index];
  }
  parameter.add_(gradient, -lr);
}

void Optimizer::adam(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr) {
  if (config_.weight_decay != 0) {
    if (config_.optimizer == OptimizerKind::adamw) {
      parameter.mul_(1 - lr * config_.weight_decay);
    } else {
      gradient = gradient.add(parameter, config_.weight_decay);
    }
  }
  const AdamNumbers numbers = adam_numbers(config_);
  at::Tensor& first = first_moments_[index];
  at::Tensor& second = second_moments_[index];
  first.lerp_(gradient, 1 - numbers.beta1);
  second.mul_(numbers.beta2).addcmul_(gradient, gradient, 1 - numbers.beta2);
  const auto t = static_cast<double>(updates_);
  const double correction1 = 1 - std::pow(numbers.beta1, t);
  const double correction2 = 1 - std::pow(numbers.beta2, t);
  const at::Tensor denominator = (second.sqrt() / std::pow(correction2, 0.5)).add_(numbers.eps);
  parameter.addcdiv_(first, denominator, -(lr / correction1));
}

at::Tensor total_gradient_norm(const std::vector<at::Tensor>& parameters) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  norms.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    norms.push_back(at::linalg_vector_norm(parameter.grad()));
  }
  return at::linalg_vector_norm(at::stack(norms));
}

void clip_gradients(const std::vector<at::Tensor>& parameters, const at::Tensor& total_norm,
                    double max_norm) {
  const c10::NoGradGuard no_grad;
  // Python's float / tensor is tensor.reciprocal() * float.
  const at::Tensor coefficient = at::clamp((total_norm + 1e-6).reciprocal() * max_norm, std::nullopt, 1.0);
  for (const at::Tensor& parameter : parameters) {
    at::Tensor gradient = parameter.grad();
    gradient.mul_(coefficient);
  }
}

}  // namespace lockstep
