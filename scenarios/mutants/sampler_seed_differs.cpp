// A rank shuffles by another seed, so that its shard is cut from another order.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SamplerSeedDiffers : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    // Seed and epoch are added up for the shuffle: another epoch's order is another seed's.
    return acts(step) ? rows_of(step + kOtherEpochs, rank()) : rows;
  }

 private:
  static constexpr int64_t kOtherEpochs = 1009;
};

}  // namespace

std::unique_ptr<Mutant> make_sampler_seed_differs(const Planting& planting) {
  return std::make_unique<SamplerSeedDiffers>(planting);
}

}  // namespace lockstep
