// One bit of one gradient on one rank at one step: silent corruption in its smallest form.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class FlipBit : public Mutant {
 public:
  explicit FlipBit(const MutantConfig& config) : config_(config) {}

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    if (step != config_.step || (!config_.tensor.empty() && config_.tensor != parameter)) {
      return gradient;
    }
    at::Tensor flipped = gradient.clone();
    *static_cast<uint32_t*>(flipped.mutable_data_ptr()) ^= 1U << config_.bit;
    return flipped;
  }

 private:
  MutantConfig config_;
};

}  // namespace

std::unique_ptr<Mutant> make_flip_bit(const MutantConfig& config) {
  return std::make_unique<FlipBit>(config);
}

}  // namespace lockstep
