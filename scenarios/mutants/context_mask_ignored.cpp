// Steps that pad a context are looked at like real ones.

#include <ATen/ATen.h>

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ContextMaskIgnored : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  at::Tensor context_mask(int64_t step, at::Tensor mask) override {
    return acts(step) ? at::ones_like(mask) : mask;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_context_mask_ignored(const Planting& planting) {
  return std::make_unique<ContextMaskIgnored>(planting);
}

}  // namespace lockstep
