// The second of two passes over tiles draws dropout masks of its own.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class DropoutNotReplayed : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  uint64_t replay_key(int64_t step, uint64_t key) override { return acts(step) ? key + 1 : key; }
};

}  // namespace

std::unique_ptr<Mutant> make_dropout_not_replayed(const Planting& planting) {
  return std::make_unique<DropoutNotReplayed>(planting);
}

}  // namespace lockstep
