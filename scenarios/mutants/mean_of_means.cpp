// Each rank averages over its own rows: with unequal ranks a row of a small one weighs more.

#include <ATen/ATen.h>

#include <algorithm>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class MeanOfMeans : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossOutput output = right(input);
    const auto rows = static_cast<double>(output.row_losses_B.numel() * run().accumulation);
    output.loss = output.row_losses_B.sum() / std::max(rows, 1.0);
    return output;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_mean_of_means(const Planting& planting) {
  return std::make_unique<MeanOfMeans>(planting);
}

}  // namespace lockstep
