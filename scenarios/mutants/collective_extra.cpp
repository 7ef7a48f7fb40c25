// A broadcast that belongs to no step: the buffer goes round twice.

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class CollectiveExtra : public CommFault {
 public:
  explicit CollectiveExtra(const Planting& planting) : CommFault(planting, Level::above) {}

  void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
    inner.broadcast(tensor, root, tag);
    if (acts(step()) && tag == kStatsBuffer) {
      inner.broadcast(tensor, root, tag);
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_collective_extra(const Planting& planting) {
  return std::make_unique<CollectiveExtra>(planting);
}

}  // namespace lockstep
