// The last rank does not receive the broadcast, and keeps what it had.

#include <ATen/ATen.h>

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class BroadcastNotReceived : public CommFault {
 public:
  explicit BroadcastNotReceived(const Planting& planting) : CommFault(planting, Level::below) {}

  void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
    const bool lost = acts(step()) && tag == kStatsBuffer && inner.rank() == inner.world_size() - 1;
    inner.broadcast(lost ? tensor.clone() : tensor, root, tag);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_broadcast_not_received(const Planting& planting) {
  return std::make_unique<BroadcastNotReceived>(planting);
}

}  // namespace lockstep
