// A rank's contribution does not arrive: zeros stand in for it.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class RankMissing : public Planted {
 public:
  using Planted::Planted;

  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return acts(step) && touches(parameter) ? at::zeros_like(gradient) : gradient;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_rank_missing(const Planting& planting) {
  return std::make_unique<RankMissing>(planting);
}

}  // namespace lockstep
