// One seed on all ranks and streams by place: the ranks draw the same noise and masks.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SameNoise : public Planted, public EnergyFault {
 public:
  explicit SameNoise(const Planting& planting)
      : Planted(planting), same_(RankSeed::same, planting.run.seed, planting.rank) {}

  const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
    return acts(step) ? same_ : right;
  }

 private:
  RandomStreams same_;
};

}  // namespace

std::unique_ptr<Mutant> make_same_noise(const Planting& planting) {
  return std::make_unique<SameNoise>(planting);
}

}  // namespace lockstep
