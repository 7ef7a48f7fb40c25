#pragma once
// What most planted faults share: from which step and on which parameter they act.

#include <ATen/core/Tensor.h>

#include <string>

#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/trainers/core/task.h"

namespace lockstep {

/// What a mutant is made from.
struct Planting {
  MutantConfig config;
  RunConfig run;
  int rank = 0;
};

class Planted : public Mutant {
 public:
  explicit Planted(const Planting& planting) : planting_(planting) {}

 protected:
  const MutantConfig& config() const { return planting_.config; }
  const RunConfig& run() const { return planting_.run; }
  int rank() const { return planting_.rank; }
  double world() const { return planting_.run.layout.world_size; }

  /// A mistake in code acts from its step on, a glitch at its step alone.
  bool acts(int64_t step) const { return step >= config().step; }
  bool strikes(int64_t step) const { return step == config().step; }
  /// The configured parameter, or the group that it is the prefix of; every one if none is configured.
  bool touches(const std::string& parameter) const { return parameter.starts_with(config().tensor); }
  /// The one parameter that it acts on: the configured one, else the trainer's usual one.
  std::string tensor() const {
    return config().tensor.empty() ? std::string(spec_of(run()).usual_parameter) : config().tensor;
  }

 private:
  Planting planting_;
};

/// Flips a bit of element 0, numbered as in float32: in float64 the one of the same meaning.
void flip_first_element(at::Tensor& tensor, int bit);

/// `tensor` with its value, and a gradient of zeros where it had one: reducers wait for undefined ones.
at::Tensor without_gradient(const at::Tensor& tensor);

/// The named parameter; throws std::invalid_argument if the model has none of that name.
at::Tensor& parameter_of(ParameterList& parameters, const std::string& name);

/// Equal type, shape and bits; two undefined tensors too.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// Of other bits. In a graph, equal numbers may have other gradients: there any other tensor counts as different.
bool differs(const at::Tensor& before, const at::Tensor& after);

}  // namespace lockstep
