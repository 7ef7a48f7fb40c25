// The reduction takes the largest value instead of the mean.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/reduced_by_hand.h"

namespace lockstep {
namespace {

class WrongGradientOp : public ReducedByHand {
 public:
  using ReducedByHand::ReducedByHand;

 protected:
  at::Tensor reduce(const at::Tensor& all_V) override { return all_V.amax(0); }
};

}  // namespace

std::unique_ptr<Mutant> make_wrong_gradient_op(const Planting& planting) {
  return std::make_unique<WrongGradientOp>(planting);
}

}  // namespace lockstep
