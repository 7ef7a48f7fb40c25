// Encoded candidates pass through bfloat16.

#include <ATen/ATen.h>

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class LowPrecisionCandidates : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  at::Tensor encoded_action(int64_t step, at::Tensor action) override {
    return acts(step) ? action.to(at::kBFloat16).to(action.scalar_type()) : action;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_low_precision_candidates(const Planting& planting) {
  return std::make_unique<LowPrecisionCandidates>(planting);
}

}  // namespace lockstep
