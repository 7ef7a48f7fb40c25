// The buffer comes from another rank than the one that has updated it.

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class WrongRoot : public CommFault {
 public:
  explicit WrongRoot(const Planting& planting) : CommFault(planting, Level::above) {}

  void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
    const bool wrong = acts(step()) && tag == kStatsBuffer && inner.world_size() > 1;
    inner.broadcast(tensor, wrong ? root + 1 : root, tag);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_wrong_root(const Planting& planting) {
  return std::make_unique<WrongRoot>(planting);
}

}  // namespace lockstep
