// Gathered candidates stand one place further than their ids say.

#include <ATen/ATen.h>

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class CandidatesMisordered : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  at::Tensor encoded_action(int64_t step, at::Tensor action) override {
    return acts(step) ? at::roll(action, 1, 0) : action;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_candidates_misordered(const Planting& planting) {
  return std::make_unique<CandidatesMisordered>(planting);
}

}  // namespace lockstep
