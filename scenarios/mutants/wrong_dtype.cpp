// Statistics kept in float64 are summed in float32.

#include <ATen/ATen.h>

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class WrongDtype : public CommFault {
 public:
  explicit WrongDtype(const Planting& planting) : CommFault(planting, Level::above) {}

  void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
    if (!acts(step()) || tag != kStatsSum) {
      inner.all_reduce_sum(tensor, tag);
      return;
    }
    const at::Tensor narrow = tensor.to(at::kFloat);
    inner.all_reduce_sum(narrow, tag);
    tensor.copy_(narrow);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_wrong_dtype(const Planting& planting) {
  return std::make_unique<WrongDtype>(planting);
}

}  // namespace lockstep
