// The learning rate times the world size, though the batch of all ranks together is as it was.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class RateLinear : public Planted {
 public:
  using Planted::Planted;

  double learning_rate(int64_t step, double rate) override { return acts(step) ? rate * world() : rate; }
};

}  // namespace

std::unique_ptr<Mutant> make_rate_linear(const Planting& planting) {
  return std::make_unique<RateLinear>(planting);
}

}  // namespace lockstep
