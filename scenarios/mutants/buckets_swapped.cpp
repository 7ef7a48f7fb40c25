// Two gradients of equal shape come back in each other's place.

#include <ATen/ATen.h>

#include "harness/train/parameters.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class BucketsSwapped : public Planted {
 public:
  using Planted::Planted;

  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
    if (acts(step)) {
      at::Tensor& query = parameter_of(parameters, "energy_head.query.weight").mutable_grad();
      at::Tensor& key = parameter_of(parameters, "energy_head.key.weight").mutable_grad();
      const at::Tensor kept = query.clone();
      query.copy_(key);
      key.copy_(kept);
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_buckets_swapped(const Planting& planting) {
  return std::make_unique<BucketsSwapped>(planting);
}

}  // namespace lockstep
