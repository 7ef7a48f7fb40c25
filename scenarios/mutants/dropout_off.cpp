// A replica left in evaluation mode: no dropout.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class DropoutOff : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  double dropout(int64_t step, double probability) override { return acts(step) ? 0 : probability; }
};

}  // namespace

std::unique_ptr<Mutant> make_dropout_off(const Planting& planting) {
  return std::make_unique<DropoutOff>(planting);
}

}  // namespace lockstep
