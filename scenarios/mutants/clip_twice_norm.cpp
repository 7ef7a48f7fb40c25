// The norm of gradients that are reduced already is summed over the ranks again: clipped too hard.

#include <cmath>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ClipTwiceNorm : public Planted {
 public:
  using Planted::Planted;

  double clip_norm(int64_t step, double total_norm) override {
    return acts(step) ? total_norm * std::sqrt(world()) : total_norm;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_clip_twice_norm(const Planting& planting) {
  return std::make_unique<ClipTwiceNorm>(planting);
}

}  // namespace lockstep
