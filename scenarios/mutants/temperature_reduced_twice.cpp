// The temperature's gradient is summed over the ranks by hand, and averaged with the others afterwards.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class TemperatureReducedTwice : public Planted {
 public:
  using Planted::Planted;

  std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) override {
    comm_ = comm.get();
    return comm;
  }
  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    if (!acts(step) || parameter != "temperature.log_tau") {
      return gradient;
    }
    at::Tensor sum = gradient.clone();
    comm_->all_reduce_sum(sum, "temperature.gradient");
    return sum;
  }

 private:
  Comm* comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Mutant> make_temperature_reduced_twice(const Planting& planting) {
  return std::make_unique<TemperatureReducedTwice>(planting);
}

}  // namespace lockstep
