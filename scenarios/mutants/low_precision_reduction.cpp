// Gradients are sent, and arrive, as bfloat16.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/reduced_by_hand.h"

namespace lockstep {
namespace {

class LowPrecisionReduction : public ReducedByHand {
 public:
  using ReducedByHand::ReducedByHand;

 protected:
  at::Tensor to_send(const at::Tensor& local) override {
    return local.to(at::kBFloat16).to(local.scalar_type());
  }
  at::Tensor reduce(const at::Tensor& all_V) override {
    return all_V.mean(0).to(at::kBFloat16).to(all_V.scalar_type());
  }
};

}  // namespace

std::unique_ptr<Mutant> make_low_precision_reduction(const Planting& planting) {
  return std::make_unique<LowPrecisionReduction>(planting);
}

}  // namespace lockstep
