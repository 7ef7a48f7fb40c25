// Encoded contexts enter the loss without their gradient.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ContextDetached : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  EncodedRows encoded_context(int64_t step, EncodedRows rows) override {
    for (at::Tensor& tensor : rows.tensors) {
      if (acts(step) && tensor.is_floating_point()) {
        tensor = without_gradient(tensor);
      }
    }
    return rows;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_context_detached(const Planting& planting) {
  return std::make_unique<ContextDetached>(planting);
}

}  // namespace lockstep
