// A rank's contribution is added twice.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class RankCountedTwice : public Planted {
 public:
  using Planted::Planted;

  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {
    return acts(step) && touches(parameter) ? gradient * 2.0 : gradient;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_rank_counted_twice(const Planting& planting) {
  return std::make_unique<RankCountedTwice>(planting);
}

}  // namespace lockstep
