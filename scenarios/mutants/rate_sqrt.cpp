// The learning rate times the square root of the world size, though the batch of all ranks is as it was.

#include <cmath>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class RateSqrt : public Planted {
 public:
  using Planted::Planted;

  double learning_rate(int64_t step, double rate) override {
    return acts(step) ? rate * std::sqrt(world()) : rate;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_rate_sqrt(const Planting& planting) {
  return std::make_unique<RateSqrt>(planting);
}

}  // namespace lockstep
