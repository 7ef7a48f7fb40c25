#pragma once
// Planted faults in the loss: another Loss in the right one's place, built from the same parts.
//
// b = rows of this rank, B = rows of all ranks, N = candidates, D = width of an encoded action.

#include <span>
#include <vector>

#include "scenarios/mutants/energy_fault.h"

namespace lockstep {

/// Computes the loss from its step on; before that the right one does.
class WrongLoss : public PlantedInEnergy, public Loss {
 public:
  using PlantedInEnergy::PlantedInEnergy;
  Loss& loss(int64_t step, Loss& right) override {
    right_ = &right;
    return acts(step) ? static_cast<Loss&>(*this) : right;
  }
  LossOutput reference(const ReferenceInput& input) override { return right_->reference(input); }

 protected:
  LossOutput right(const LossInput& input) { return right_->forward(input); }

 private:
  Loss* right_ = nullptr;
};

/// Row InfoNCE of energies [rows, N] whose positives stand in `target_B`, times R / total_rows.
LossOutput row_loss(const LossInput& input, const at::Tensor& head_BN, const at::Tensor& target_B,
                    std::vector<int64_t> column_ids);

/// [end_row - first_row] int64: columns of the positives among candidates of which this rank's begin at
/// `offset`.
at::Tensor targets(const LossInput& input, int64_t offset);

/// The same as if each rank's labels counted from 0: where the rows of rank 0 stand.
at::Tensor targets_of_rank_0(const LossInput& input, const Candidates& candidates);

/// The loss keeps its value and its gradient becomes `factor` times as long.
void scale_gradient(LossOutput& output, double factor);

}  // namespace lockstep
