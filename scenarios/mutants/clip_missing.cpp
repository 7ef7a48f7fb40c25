// Gradients are not clipped.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ClipMissing : public Planted {
 public:
  using Planted::Planted;

  double clip_norm(int64_t step, double total_norm) override { return acts(step) ? -1 : total_norm; }
};

}  // namespace

std::unique_ptr<Mutant> make_clip_missing(const Planting& planting) {
  return std::make_unique<ClipMissing>(planting);
}

}  // namespace lockstep
