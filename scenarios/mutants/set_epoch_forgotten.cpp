// The sampler is not told the epoch: every epoch has the order of the one before.

#include <algorithm>
#include <set>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class SetEpochForgotten : public Planted {
 public:
  using Planted::Planted;

  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
    if (!acts(step)) {
      return rows;
    }
    const int64_t batches = batches_per_epoch(rows_of);
    const int64_t epoch = std::max<int64_t>(config().step - 1, 0) / batches;
    return step / batches > epoch ? rows_of(epoch * batches + step % batches, rank()) : rows;
  }

 private:
  /// A sample comes again in the first batch of the second epoch, or the first would have been longer.
  int64_t batches_per_epoch(const RowsOf& rows_of) {
    std::set<int64_t> seen;
    for (int64_t step = 0; batches_ == 0; ++step) {
      for (int rank = 0; rank < run().layout.world_size; ++rank) {
        for (const int64_t id : rows_of(step, rank)) {
          batches_ = seen.insert(id).second || batches_ > 0 ? batches_ : step;
        }
      }
    }
    return batches_;
  }

  int64_t batches_ = 0;
};

}  // namespace

std::unique_ptr<Mutant> make_set_epoch_forgotten(const Planting& planting) {
  return std::make_unique<SetEpochForgotten>(planting);
}

}  // namespace lockstep
