// Every rank takes the shard of rank 0: the sampler was not given the rank.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ShardsIdentical : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    return acts(step) ? rows_of(step, 0) : rows;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_shards_identical(const Planting& planting) {
  return std::make_unique<ShardsIdentical>(planting);
}

}  // namespace lockstep
