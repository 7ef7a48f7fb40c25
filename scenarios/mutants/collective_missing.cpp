// The sum over ranks is left out: the buffer is made from the rows of rank 0.

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class CollectiveMissing : public CommFault {
 public:
  explicit CollectiveMissing(const Planting& planting) : CommFault(planting, Level::above) {}

  void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
    if (!acts(step()) || tag != kStatsSum) {
      inner.all_reduce_sum(tensor, tag);
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_collective_missing(const Planting& planting) {
  return std::make_unique<CollectiveMissing>(planting);
}

}  // namespace lockstep
