// The last row of a rank is the first one of the next rank.

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class ShardOverlap : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    const std::vector<int64_t> next = rows_of(step, (rank() + 1) % run().layout.world_size);
    if (acts(step) && !rows.empty() && !next.empty()) {
      rows.back() = next.front();
    }
    return rows;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_shard_overlap(const Planting& planting) {
  return std::make_unique<ShardOverlap>(planting);
}

}  // namespace lockstep
