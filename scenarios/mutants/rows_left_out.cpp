// The last row of each rank falls out of the sum, and still counts in the number that it is divided by.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class RowsLeftOut : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    LossOutput output = right(input);
    const int64_t rows = output.row_losses_B.numel();
    if (rows > 0) {
      output.loss = output.row_losses_B.narrow(0, 0, rows - 1).sum() * output.row_weight;
    }
    return output;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_rows_left_out(const Planting& planting) {
  return std::make_unique<RowsLeftOut>(planting);
}

}  // namespace lockstep
