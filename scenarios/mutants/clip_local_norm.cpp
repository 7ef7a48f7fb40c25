// Reduced gradients are clipped by the norm of the rank's own ones: replicas part.

#include <ATen/ATen.h>

#include <map>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"
#include "scenarios/mutants/reduced_by_hand.h"

namespace lockstep {
namespace {

class ClipLocalNorm : public Planted {
 public:
  using Planted::Planted;

  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    if (acts(step)) {
      local_[parameter] = gradient.clone();
    }
    return gradient;
  }
  double clip_norm(int64_t step, double total_norm) override {
    return acts(step) ? norm_of(local_) : total_norm;
  }

 private:
  std::map<std::string, at::Tensor> local_;
};

}  // namespace

std::unique_ptr<Mutant> make_clip_local_norm(const Planting& planting) {
  return std::make_unique<ClipLocalNorm>(planting);
}

}  // namespace lockstep
