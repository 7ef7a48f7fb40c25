// Streams of seed + rank, by place: what a sample draws depends on the layout.

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class NoiseByRank : public Planted, public EnergyFault {
 public:
  explicit NoiseByRank(const Planting& planting)
      : Planted(planting), by_rank_(RankSeed::plus_rank, planting.run.seed, planting.rank) {}

  const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
    return acts(step) ? by_rank_ : right;
  }

 private:
  RandomStreams by_rank_;
};

}  // namespace

std::unique_ptr<Mutant> make_noise_by_rank(const Planting& planting) {
  return std::make_unique<NoiseByRank>(planting);
}

}  // namespace lockstep
