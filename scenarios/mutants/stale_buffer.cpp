// A rank reads the result that a sum had at the step before.

#include <ATen/ATen.h>

#include <utility>

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class StaleBuffer : public CommFault {
 public:
  explicit StaleBuffer(const Planting& planting) : CommFault(planting, Level::below) {}

  void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
    inner.all_reduce_sum(tensor, tag);
    if (tag != kStatsSum) {
      return;
    }
    const at::Tensor before = std::exchange(last_, tensor.clone());
    if (acts(step()) && before.defined()) {
      tensor.copy_(before);
    }
  }

 private:
  at::Tensor last_;
};

}  // namespace

std::unique_ptr<Mutant> make_stale_buffer(const Planting& planting) {
  return std::make_unique<StaleBuffer>(planting);
}

}  // namespace lockstep
