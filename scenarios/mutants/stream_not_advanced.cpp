// Streams stay where they were at the step before.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class StreamNotAdvanced : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  int64_t stream_step(int64_t step) override { return acts(step) ? config().step - 1 : step; }
};

}  // namespace

std::unique_ptr<Mutant> make_stream_not_advanced(const Planting& planting) {
  return std::make_unique<StreamNotAdvanced>(planting);
}

}  // namespace lockstep
