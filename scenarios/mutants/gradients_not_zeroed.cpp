// Gradients of the step before stay and are added to.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class GradientsNotZeroed : public Planted {
 public:
  using Planted::Planted;

  bool zeroes_gradients(int64_t step) override { return !acts(step); }
};

}  // namespace

std::unique_ptr<Mutant> make_gradients_not_zeroed(const Planting& planting) {
  return std::make_unique<GradientsNotZeroed>(planting);
}

}  // namespace lockstep
