// The largest value where the sum was meant.

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class WrongOp : public CommFault {
 public:
  explicit WrongOp(const Planting& planting) : CommFault(planting, Level::above) {}

  void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
    if (acts(step()) && tag == kStatsSum) {
      inner.all_reduce_max(tensor, tag);
    } else {
      inner.all_reduce_sum(tensor, tag);
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_wrong_op(const Planting& planting) {
  return std::make_unique<WrongOp>(planting);
}

}  // namespace lockstep
