#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "scenarios/mutants/energy_fault.h"
#include "scenarios/mutants/planted.h"

// Planted faults in the loss: another Loss in the right one's place, built from the same parts.
//
// b = rows of this rank, B = rows of all ranks, N = candidates, D = width of an encoded action.

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

// Gathers of encoded rows whose backward is wrong, as published losses have had it.

/// What the backward of a gather hands to the rank's own rows. The right one is the sum over the ranks.
enum class GatherBackward {
  none,       ///< nothing: a plain gather
  own_slice,  ///< what this rank's own loss says of them: the own rows are put back in
  average     ///< the mean over the ranks
};

struct GatheredBlock {
  at::Tensor action_ND;
  EncodedRows contexts;  ///< of all ranks, if they were asked for
  std::vector<int64_t> ids;
  int64_t offset = 0;  ///< where this rank's rows begin
  EncodedRows rows;    ///< this rank's own contexts
  at::Tensor own_bD;   ///< this rank's own encoded actions
};

/// Collective: this rank's encoded actions (and contexts) and those of all ranks.
GatheredBlock gather_encoded(const LossInput& input, GatherBackward backward, bool contexts);

/// Own rows against all ranks' encoded actions; only the actions are gathered.
LossOutput row_block_loss(const LossInput& input, GatherBackward backward);

/// Every rank computes the loss of all rows of all ranks. Needs dropout 0: rows of other ranks have no
/// streams here.
LossOutput full_block_loss(const LossInput& input, GatherBackward backward);

// Planted faults in the reduction of gradients: the local ones are kept, and reduced again in another way.

class ReducedByHand : public Planted {
 public:
  using Planted::Planted;

  std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) override {
    network_ = comm.get();
    return comm;
  }
  at::Tensor sent_gradient(int64_t step, const std::string& parameter, const at::Tensor& gradient) override;
  /// Collective: every rank must have this mutant.
  void reduced_gradients(int64_t step, ParameterList& parameters, Comm& comm) override;

 protected:
  /// Called once a step with this rank's local gradients, before they are sent.
  virtual void prepare(const std::map<std::string, at::Tensor>& /*local*/) {}
  virtual at::Tensor to_send(const at::Tensor& local) { return local; }
  /// Contributions of all ranks [V, ...] -> the reduced gradient.
  virtual at::Tensor reduce(const at::Tensor& all_V) = 0;

 private:
  Comm* network_ = nullptr;  // below the ledger, which has recorded the reducer's own
  std::map<std::string, at::Tensor> local_;
};

/// One parameter, or this rank's shard of it, is as before the update.
class KeptFromUpdate : public Planted {
 public:
  using Planted::Planted;
  void before_update(int64_t step, const TrainingState& state) override {
    if (acts(step)) kept_ = parameter_of(state.parameters, tensor()).detach().clone();
  }
  void after_update(int64_t step, const TrainingState& state) override {
    if (acts(step)) parameter_of(state.parameters, tensor()).detach().copy_(kept_);
  }

 private:
  at::Tensor kept_;
};

/// L2 norm of all tensors together.
double norm_of(const std::map<std::string, at::Tensor>& tensors);

}  // namespace lockstep
