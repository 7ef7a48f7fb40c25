// The optimizer's moments are gone at one step, as after a resume without them.

#include <ATen/ATen.h>

#include "harness/train/optimizer.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class OptimizerStateLost : public Planted {
 public:
  using Planted::Planted;

  void before_update(int64_t step, const TrainingState& state) override {
    if (!strikes(step)) {
      return;
    }
    for (std::vector<at::Tensor>* moments :
         {&state.optimizer.first_moments(), &state.optimizer.second_moments()}) {
      for (at::Tensor& moment : *moments) {
        if (moment.defined()) {
          moment.zero_();
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<Mutant> make_optimizer_state_lost(const Planting& planting) {
  return std::make_unique<OptimizerStateLost>(planting);
}

}  // namespace lockstep
