#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/core/task.h"
#include "losses/loss.h"
#include "scenarios/energy/model.h"
#include "scenarios/energy/spec.h"
#include "scenarios/mutants/energy_fault.h"

// The energy model at one step of one rank, as a loss sees it.

namespace lockstep {

/// The model at one step of one rank: what a loss may ask of it, with the step's noise and dropout.
class EnergyStep : public EnergyFunction {
 public:
  EnergyStep(const RunConfig& config, const EnergyModel& model, const PairTensors& rows,
             const RandomStreams& streams, const StepInput& input, EnergyFault* fault);

  EncodedRows encode_context() override;

  /// Encoded once: the loss and the action head share it.
  const EncodedContext& context();

  /// What each layer of the action head predicts as the next action.
  std::vector<at::Tensor> predict_actions() { return model_.model().predict_actions(context()); }

  /// Exact arithmetic: these candidates are encoded once for all rows of a micro-step, and each row's gradient goes through
  /// that one graph. `encoded` outlives the step and is undefined until then.
  void share_encoded(const at::Tensor& action_NA, at::Tensor& encoded) {
    shared_action_NA_ = action_NA;
    shared_encoded_ = &encoded;
  }

  /// Exact arithmetic: contexts of the micro-step's rows as `noisy_contexts` gave them, in place of those that each row makes of its own.
  void share_contexts(const at::Tensor& noisy_PSC) { noisy_PSC_ = noisy_PSC; }
  at::Tensor noisy_contexts() const { return with_noise(rows_.context_PSC, 0); }

  at::Tensor encode_action(const at::Tensor& action_NA) override;

  at::Tensor energies(const EncodedRows& rows, const at::Tensor& action_ND,
                      std::span<const int64_t> column_ids, int64_t first_column) override {
    return of_head(rows, action_ND, {{column_ids.begin(), column_ids.end()}, first_column, false});
  }

  at::Tensor own_energies(const EncodedRows& rows, const at::Tensor& action_BnD, int64_t first_id) override;

  void begin_replay(std::vector<at::Tensor> head_parameters) override {
    model_.begin_replay(head_parameters);
  }
  void end_replay() override { model_.end_replay(); }

  std::vector<at::Tensor> head_parameters() override { return model_.model().parameters_of(ModelPart::head); }
  at::Tensor temperature() override {
    const at::Tensor tau = model_.model().temperature();
    return fault_ == nullptr ? tau : fault_->temperature(input_.step, tau);
  }

  /// The streams that this step drew from, in the order in which they were first used. With `replayed` those
  /// of the second pass over the energies too, under a name of their own: they must be used as the first
  /// one's.
  std::vector<StreamUse> streams(bool replayed) const;

 private:
  std::vector<uint64_t> row_keys(Purpose purpose) const { return row_keys(purpose, input_.first_row, input_.end_row); }
  std::vector<uint64_t> row_keys(Purpose purpose, int64_t first, int64_t end) const;
  uint64_t extra_draws(Purpose purpose) const {
    return fault_ == nullptr ? 0 : fault_->extra_draws(input_.step, purpose);
  }

  const EnergyShape& shape() const { return model_.model().shape(); }

  /// Candidates of the rows, by the names of their dropout streams.
  struct Columns {
    std::vector<int64_t> ids;
    int64_t first = 0;  ///< where they stand among all candidates
    bool own = false;   ///< each row's own
  };

  /// Contexts of the rows from `first_row` of the micro-step on, each with its own noise.
  at::Tensor with_noise(const at::Tensor& context_BSC, int64_t first_row) const;

  at::Tensor of_head(const EncodedRows& rows, const at::Tensor& action, const Columns& columns);

  /// Factors [rows, N, W] on the head's hidden layer, of rows from `first` on; each pair of a row and a candidate has a stream of its
  /// own. Undefined without dropout.
  at::Tensor dropout_factors(const Columns& candidates, int64_t first, int64_t rows, bool again) const;

  const RunConfig& config_;
  StepModel model_;
  const PairTensors rows_;  ///< of the micro-step
  const RandomStreams& streams_;
  const StepInput input_;  // its own: a second pass comes after the caller's is gone
  EnergyFault* fault_;     ///< or none
  double dropout_;
  std::vector<uint64_t> dropout_keys_, replay_keys_;
  at::Tensor noisy_PSC_, shared_action_NA_;
  at::Tensor* shared_encoded_ = nullptr;
  std::optional<EncodedContext> encoded_;
};

// Explicit negatives: actions near a row's own that are not it.
//
// B = rows, n = candidates of each, A = H * C values of an action chunk, H = its time steps.

/// Layers of an action head of `layers` whose predictions are negatives: the config's, or 0, n/3, n/2 and n -
/// 2, each once and in that order. As written there are always four: with few layers they repeat, and -1 is
/// the last, as in Python.
std::vector<int64_t> negative_layers(const LayerNegativesConfig& config, int64_t layers);

/// The rows that candidates are made for.
struct NegativesInput {
  const RandomStreams& streams;
  int64_t step = 0;
  std::span<const int64_t> ids;  ///< [B]
  int64_t first_row = 0;         ///< where the first of them stands among this rank's rows
  int64_t action_steps = 1;      ///< H
};

/// Each row's first `count` of: the chosen layers' predictions; its own action with noise of standard
/// deviation 0.1, 0.2 and 0.4 (in standardised units); its own action with its time steps shuffled; its own
/// action with noise of 0.3, 0.4, … until there are enough.
///
/// Predictions are detached and draws keyed by sample, so that neither the layout nor the loss changes what
/// they are. As written they are not detached, one permutation serves the whole batch, and noise comes from a
/// stream keyed by the row's place, equal on all ranks.
class ExplicitNegatives {
 public:
  ExplicitNegatives(const RunConfig& config, const NegativesInput& input);
  /// own_BA [B, A], predictions: of every layer, [B, A] each -> [B, n, A]
  at::Tensor candidates(const at::Tensor& own_BA, const std::vector<at::Tensor>& predictions);
  /// "negative_noise" and "negative_shuffle", as far as `candidates` drew from them.
  const std::vector<StreamUse>& streams() const { return uses_; }

 private:
  std::vector<uint64_t> keys(Purpose purpose, bool one_for_all) const;
  at::Tensor shuffled(const at::Tensor& own_BA);

  const LayerNegativesConfig& config_;
  int64_t layers_;
  RandomStreams as_written_;
  const NegativesInput input_;
  std::vector<StreamUse> uses_;
};

// Keyed draws as tensors: each row's numbers depend on that row's key alone.

/// A permutation of 0 … n - 1 that is not the identity (unless n < 2), by sorting uniforms; a rejected one is
/// drawn again from the stream's next n numbers.
std::vector<int64_t> keyed_shuffle(uint64_t key, int64_t n);

}  // namespace lockstep
