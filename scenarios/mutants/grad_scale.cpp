// Gradients times a factor: the world size multiplied in once too often, or a loss that was not averaged.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class GradScale : public Mutant {
 public:
  explicit GradScale(const MutantConfig& config) : config_(config) {}

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    // `tensor` may name one parameter, or a whole group by its prefix.
    if (step < config_.step || !parameter.starts_with(config_.tensor)) {
      return gradient;
    }
    return gradient * config_.factor;
  }

 private:
  MutantConfig config_;
};

}  // namespace

std::unique_ptr<Mutant> make_grad_scale(const MutantConfig& config) {
  return std::make_unique<GradScale>(config);
}

}  // namespace lockstep
