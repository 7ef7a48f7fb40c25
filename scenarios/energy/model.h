#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "harness/trainers/core/task.h"
#include "scenarios/energy/spec.h"

// E(h, a, pad_mask): a context encoder, an action encoder and a head that looks at both together.
//
// B = rows, N = candidate actions, S = context steps, C = channels, H = action steps, D = width, W = hidden
// width.

namespace lockstep {

struct EnergyShape {
  int64_t context_steps = 16;  ///< S
  int64_t channels = 6;        ///< C
  int64_t action_steps = 8;    ///< H
  int64_t width = 32;          ///< D
  int64_t hidden = 64;         ///< W
  int64_t action_layers = 0;   ///< of the action head; 0: there is none
};

/// A context, encoded: one vector a step, and one for the whole.
struct EncodedContext {
  at::Tensor steps_BSD;    ///< [B, S, D]
  at::Tensor summary_B1D;  ///< [B, 1, D]
  at::Tensor mask_BS;      ///< [B, S] bool, true where the context has a real step

  EncodedContext rows(int64_t first, int64_t count) const;
};

/// Candidate actions, encoded, and what the head's layers make of each by itself.
struct EncodedCandidates {
  at::Tensor action_ND;  ///< [N, D]
  at::Tensor query_ND;   ///< [N, D]
  at::Tensor hidden_NW;  ///< [N, W], before the activation
};

/// What computes as one piece, and is computed again as one where activations are not kept.
enum class ModelPart { context_encoder, action_encoder, head };

/// The energy of every (context, action) pair. The head does not factorise: each action attends over the
/// context's unmasked steps, and an MLP sees what it found beside the context's summary, the action, and
/// their product.
class EnergyModel {
 public:
  /// Parameters are drawn from a generator seeded with `seed`, module by module, each uniform in
  /// +-1/sqrt(fan_in).
  /// Drawn as float32 at any `dtype`, so that a float64 model begins where the float32 one does.
  EnergyModel(const EnergyShape& shape, double temperature, int64_t seed, at::ScalarType dtype = at::kFloat);

  ParameterList& parameters() { return *parameters_; }
  const EnergyShape& shape() const { return shape_; }
  at::ScalarType dtype() const { return dtype_; }
  /// The parameters that a part reads, in the order in which it first does; of each layer the weight before
  /// the bias.
  std::vector<at::Tensor> parameters_of(ModelPart part) const;
  /// A view of this model that reads other tensors in their place.
  EnergyModel with_parameters(ModelPart part, const std::vector<at::Tensor>& parameters) const;
  /// A view of this model that reads its parameters cast to `dtype` and computes in it; gradients come back
  /// through the casts in the parameters' own type. The temperature keeps its type.
  EnergyModel cast(at::ScalarType dtype) const;

  /// context_BSC [B, S, C], mask_BS [B, S] bool; masked steps count as zeros.
  EncodedContext encode_context(const at::Tensor& context_BSC, const at::Tensor& mask_BS) const;
  /// action_NA [N, H * C] -> [N, D]
  at::Tensor encode_action(const at::Tensor& action_NA) const;
  /// action_ND: encoded actions. dropout_BNW: factors on the hidden layer; undefined: none. -> [B, N]
  at::Tensor head(const EncodedContext& context, const at::Tensor& action_ND,
                  const at::Tensor& dropout_BNW) const;
  /// The same pairs' energies where each row has candidates of its own: action_BnD [B, n, D] -> [B, n]
  at::Tensor own_head(const EncodedContext& context, const at::Tensor& action_BnD,
                      const at::Tensor& dropout_BnW) const;
  /// action_NA [N, H * C]
  EncodedCandidates encode_candidates(const at::Tensor& action_NA) const;
  /// head() without dropout, to rounding, for evaluations: the hidden layer takes its share of a row's steps once a row and that of a
  /// candidate once a candidate, and of a pair only what both have to be known for. -> [B, N]
  at::Tensor scores(const EncodedContext& context, const EncodedCandidates& candidates) const;
  /// What each layer of the action head predicts as the next action, [B, H * C] a layer: residual layers on
  /// the context's summary, x + tanh(W x + b), and one readout for all of them. Empty without an action head.
  std::vector<at::Tensor> predict_actions(const EncodedContext& context) const;
  /// tau = exp(log_tau), a scalar with gradient.
  at::Tensor temperature() const;

 private:
  /// [B, N, S]: how much each candidate looks at each step. score_BSN: before scaling and masking.
  at::Tensor attention(const EncodedContext& context, const at::Tensor& score_BSN) const;
  /// From attention scores to energies; action_BND: each row's candidates.
  at::Tensor energies_of(const EncodedContext& context, const at::Tensor& score_BSN, const at::Tensor& action_BND,
                         const at::Tensor& dropout_BNW) const;
  /// The members that hold a part's parameters, and all that are cast.
  std::vector<at::Tensor*> slots(ModelPart part);
  std::vector<at::Tensor*> slots();
  at::Tensor draw(const std::string& name, at::IntArrayRef shape, int64_t fan_in, at::Generator& generator);

  EnergyShape shape_;
  at::ScalarType dtype_;
  std::shared_ptr<ParameterList> parameters_ = std::make_shared<ParameterList>();  ///< that of every view of the model
  at::Tensor context_in_w_, context_in_b_, context_place_, context_out_w_, context_out_b_;
  at::Tensor summary_in_w_, summary_in_b_, summary_out_w_;
  at::Tensor action_in_w_, action_in_b_, action_out_w_, action_out_b_;
  at::Tensor query_w_, key_w_, hidden_w_, hidden_b_, energy_w_, energy_b_;
  at::Tensor log_tau_;
  std::vector<at::Tensor> layer_w_, layer_b_;
  at::Tensor readout_w_, readout_b_;
};

// The model of one row as exact arithmetic runs it: the encoders and the head are one node of the graph each, in place of
// some forty. What a node costs beside its numbers is most of what a small row costs.

/// As EnergyModel::encode_context, of one row: the same operations in the same order, and PyTorch's derivatives of them, so that bits
/// are the same too (a test holds the two against each other). Data have no gradient: what has one, such as predictions that serve as
/// candidates, goes through the model itself.
EncodedContext encode_row_context(const EnergyModel& model, const at::Tensor& context_1SC, const at::Tensor& mask_1S);

/// As EnergyModel::encode_action, of the candidates that rows share.
at::Tensor encode_row_action(const EnergyModel& model, const at::Tensor& action_NA);

/// As EnergyModel::head, of one row: [1, N].
at::Tensor row_head(const EnergyModel& model, const EncodedContext& context, const at::Tensor& action_ND,
                    const at::Tensor& dropout_1NW);

// The model as one step runs it: in the step's precision, and with activations kept or computed again.
//
// Where all pairs of rows and candidates would keep more than fits beside them, the head takes its rows in parts, and computes each
// part's activations again in the backward pass: memory grows with the scores alone, and what is computed stays in the cache.

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

// Windows as tensors, shared by all replicas of a run.

struct PairTensors {
  at::Tensor context_PSC;  ///< [P, S, C] float32
  at::Tensor mask_PS;      ///< [P, S] bool
  at::Tensor action_PA;    ///< [P, H * C] float32
  int64_t size() const { return action_PA.size(0); }
};

/// The training pairs: kept whole, or (data.cache false) cut from their series whenever they are asked for,
/// with the same bits. Several threads may ask.
class TrainingPairs {
 public:
  explicit TrainingPairs(const Dataset& dataset, bool cached);
  int64_t size() const;
  int64_t context_steps() const { return cached_.context_PSC.size(1); }
  int64_t channels() const { return cached_.context_PSC.size(2); }
  /// Row r is pair ids[r].
  PairTensors rows(const std::vector<int64_t>& ids) const;

 private:
  PairTensors cached_;                        ///< without a row if pairs are cut
  std::shared_ptr<const PairCutter> cutter_;  ///< null: cached
};

/// Some training pairs, ready before their step.
class PreparedPairs : public PreparedRows {
 public:
  PreparedPairs(const TrainingPairs& pairs, const std::vector<int64_t>& ids);
  /// False if one of the pairs is not among them.
  bool rows(const std::vector<int64_t>& ids, PairTensors& out) const;

 private:
  PairTensors pairs_;
  std::unordered_map<int64_t, int64_t> place_of_;
};

struct EnergyData {
  TrainingPairs train;
  PairTensors holdout, test;
};

EnergyData make_energy_data(const Dataset& dataset, const WindowConfig& config);

}  // namespace lockstep
