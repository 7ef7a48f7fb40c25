// The buffer is broadcast before the sum that it is updated from.

#include <utility>

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class CollectiveOrder : public CommFault {
 public:
  explicit CollectiveOrder(const Planting& planting) : CommFault(planting, Level::above) {}

  void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
    if (acts(step()) && tag == kStatsSum) {
      waiting_ = tensor;
    } else {
      inner.all_reduce_sum(tensor, tag);
    }
  }
  void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
    inner.broadcast(tensor, root, tag);
    if (tag == kStatsBuffer && waiting_.defined()) {
      inner.all_reduce_sum(std::exchange(waiting_, {}), kStatsSum);
    }
  }

 private:
  at::Tensor waiting_;
};

}  // namespace

std::unique_ptr<Mutant> make_collective_order(const Planting& planting) {
  return std::make_unique<CollectiveOrder>(planting);
}

}  // namespace lockstep
