// Energies are divided by the temperature in the head and once more in the loss.

#include <ATen/ATen.h>

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class TemperatureAppliedTwice : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  at::Tensor temperature(int64_t step, at::Tensor tau) override { return acts(step) ? tau * tau : tau; }
};

}  // namespace

std::unique_ptr<Mutant> make_temperature_applied_twice(const Planting& planting) {
  return std::make_unique<TemperatureAppliedTwice>(planting);
}

}  // namespace lockstep
