// A rank sends the gradients of the step before.

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class StaleGradient : public Planted {
 public:
  using Planted::Planted;

  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    const at::Tensor before = std::exchange(last_[parameter], gradient.clone());
    return acts(step) && before.defined() ? before : gradient;
  }

 private:
  std::map<std::string, at::Tensor> last_;
};

}  // namespace

std::unique_ptr<Mutant> make_stale_gradient(const Planting& planting) {
  return std::make_unique<StaleGradient>(planting);
}

}  // namespace lockstep
