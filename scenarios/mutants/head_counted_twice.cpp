// Row and column blocks with the other side detached: encoders come out right, whatever stands in both blocks
// twice.

#include <ATen/ATen.h>

#include "losses/block.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_gather.h"

namespace lockstep {
namespace {

class HeadCountedTwice : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    const GatheredBlock block = gather_encoded(input, GatherBackward::none, true);
    const at::Tensor energies = input.model.energies(block.rows, block.action_ND, block.ids, 0);
    LossOutput output = row_loss(input, energies, targets(input, block.offset), block.ids);
    // Column block: everybody's rows against the own candidates, weighted with what the softmax of each row
    // gives.
    const at::Tensor all =
        in_loss_precision(input.model.energies(block.contexts, block.action_ND, block.ids, 0).detach());
    const at::Tensor tau = input.model.temperature();
    const at::Tensor weight = at::softmax(-all / tau.detach(), 1) - at::eye(all.size(0), all.options());
    const auto own = static_cast<int64_t>(input.ids.size());
    const at::Tensor column =
        in_loss_precision(input.model.energies(block.contexts, block.own_bD, input.ids, block.offset));
    const at::Tensor sum = (weight.narrow(1, block.offset, own) * (-column / tau)).sum() * output.row_weight;
    output.loss = output.loss + (sum - sum.detach());
    return output;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_head_counted_twice(const Planting& planting) {
  return std::make_unique<HeadCountedTwice>(planting);
}

}  // namespace lockstep
