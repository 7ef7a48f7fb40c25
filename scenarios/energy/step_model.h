#pragma once
// The model as one step runs it: in the step's precision, and with activations kept or computed again.
//
// Where all pairs of rows and candidates would keep more than fits beside them, the head takes its rows in parts, and computes each
// part's activations again in the backward pass: memory grows with the scores alone, and what is computed stays in the cache.

#include <functional>
#include <optional>
#include <vector>

#include "scenarios/energy/config.h"
#include "scenarios/energy/model.h"

namespace lockstep {

/// Cheap to make: tensors are shared with `model`, except weights that are cast to a lower precision for this
/// step.
class StepModel {
 public:
  /// `one_row`: a step of one row, whose parts are few nodes of the graph each (row_model.h), unless activations are computed again.
  StepModel(const RunConfig& config, const EnergyModel& model, bool one_row);

  const EnergyModel& model() const { return model_; }

  /// As EnergyModel's.
  EncodedContext encode_context(const at::Tensor& context_BSC, const at::Tensor& mask_BS) const;
  at::Tensor encode_action(const at::Tensor& action_NA) const;

  /// Dropout factors of `rows` of a head's rows, from `first` on, or undefined; the second of two passes asks `again`.
  using Factors = std::function<at::Tensor(int64_t first, int64_t rows, bool again)>;
  /// EnergyModel::own_head if each row has candidates of its own, else EnergyModel::head. `factors` may be
  /// kept with the graph.
  at::Tensor head(const EncodedContext& context, const at::Tensor& action, bool own,
                  const Factors& factors) const;

  /// Until end_replay `head` reads these in place of its parameters, and draws again.
  void begin_replay(const std::vector<at::Tensor>& head_parameters);
  void end_replay() { replay_.reset(); }

 private:
  bool recomputes_, one_row_;
  EnergyModel model_;
  std::optional<EnergyModel> replay_;
};

}  // namespace lockstep
