// One bit of one gradient on one rank at one step: silent corruption in its smallest form.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class FlipBit : public Planted {
 public:
  using Planted::Planted;

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    if (step != config().step || (!config().tensor.empty() && config().tensor != parameter)) {
      return gradient;
    }
    at::Tensor flipped = gradient.clone();
    *static_cast<uint32_t*>(flipped.mutable_data_ptr()) ^= 1U << config().bit;
    return flipped;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_flip_bit(const Planting& planting) {
  return std::make_unique<FlipBit>(planting);
}

}  // namespace lockstep
