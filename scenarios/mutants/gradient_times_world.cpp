// Local gradients times the world size, for a gather that was not there.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class GradientTimesWorld : public Planted {
 public:
  using Planted::Planted;

  at::Tensor local_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return acts(step) && touches(parameter) ? gradient * world() : gradient;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_gradient_times_world(const Planting& planting) {
  return std::make_unique<GradientTimesWorld>(planting);
}

}  // namespace lockstep
