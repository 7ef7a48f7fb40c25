// The forward pass goes past the wrapper that reduces: every rank keeps its own gradients.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class PastTheReducer : public Planted {
 public:
  using Planted::Planted;

  bool reduces(int64_t step) override { return !acts(step); }
};

}  // namespace

std::unique_ptr<Mutant> make_past_the_reducer(const Planting& planting) {
  return std::make_unique<PastTheReducer>(planting);
}

}  // namespace lockstep
