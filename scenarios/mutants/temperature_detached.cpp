// The temperature enters the loss without its gradient.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class TemperatureDetached : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  at::Tensor temperature(int64_t step, at::Tensor tau) override {
    return acts(step) ? without_gradient(tau) : tau;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_temperature_detached(const Planting& planting) {
  return std::make_unique<TemperatureDetached>(planting);
}

}  // namespace lockstep
