// A buffer was reassigned: what is broadcast is a tensor that nobody reads.

#include <ATen/ATen.h>

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class BuffersNotSynchronised : public CommFault {
 public:
  explicit BuffersNotSynchronised(const Planting& planting) : CommFault(planting, Level::above) {}

  void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
    inner.broadcast(acts(step()) && tag == kStatsBuffer ? tensor.clone() : tensor, root, tag);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_buffers_not_synchronised(const Planting& planting) {
  return std::make_unique<BuffersNotSynchronised>(planting);
}

}  // namespace lockstep
