// Predictions that serve as negatives keep their gradient: the action head is trained to predict badly.

#include <ATen/ATen.h>

#include "scenarios/energy/explicit_negatives.h"
#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {
namespace {

class CandidatesNotDetached : public Planted, public EnergyFault {
 public:
  using Planted::Planted;

  at::Tensor explicit_candidates(int64_t step, at::Tensor candidates,
                                 const std::vector<at::Tensor>& predictions) override {
    if (!acts(step)) {
      return candidates;
    }
    std::vector<at::Tensor> columns = candidates.unbind(1);
    const std::vector<int64_t> layers = negative_layers(run().layer, static_cast<int>(predictions.size()));
    for (std::size_t k = 0; k < layers.size(); ++k) {
      columns[k] = predictions[static_cast<std::size_t>(layers[k])];
    }
    return at::stack(columns, 1);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_candidates_not_detached(const Planting& planting) {
  return std::make_unique<CandidatesNotDetached>(planting);
}

}  // namespace lockstep
