#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/judge/trace/rank_result.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/exact_sum.h"
#include "harness/trainers/core/task.h"

// Finds gradients that are not finite before anybody takes an update from them, and lets all ranks know the same of it.

namespace lockstep {

/// The first number of a rank's own gradients that is not finite.
struct NotFinite {
  int rank = 0;
  std::size_t tensor = 0;   ///< index into the parameter list
  int64_t index = 0;        ///< of the element, in the order of the tensor's rows
  double value = 0;         ///< NaN or an infinity
  int ranks = 1;            ///< how many ranks have such a number
};

/// Watches one rank's own gradients of one step.
class GradientGuard {
 public:
  /// Forgets what it saw: a step begins.
  void begin();
  /// A gradient of this rank before anything is added to it; the first number that is not finite counts.
  void look(std::size_t tensor, const at::Tensor& gradient);
  /// Collective: what the lowest rank has seen that saw anything; the same on all ranks. Nothing: all are finite.
  std::optional<NotFinite> agree(Comm& comm) const;

 private:
  std::optional<NotFinite> own_;
};

/// "rank 3: the gradient of head.weight is NaN at element 17 (step 5)"
std::string in_words(const NotFinite& found, const std::vector<std::string>& names, int64_t step);

// A backward pass of a graph so small that most of PyTorch's own would be its preparation: that sets some twenty thread-local
// states anew for each node, which costs a row of exact arithmetic a fifth of its time. The nodes are PyTorch's, called in
// its order, so that the bits are too (a test holds the two against each other).

class RowBackward {
 public:
  /// Of these leaves, which require gradients and outlive this object.
  explicit RowBackward(const std::vector<at::Tensor>& leaves);
  ~RowBackward();

  /// d loss / d leaf by leaf; undefined for one that `loss`, a scalar, does not depend on. Hooks on tensors and nodes act. The graph is
  /// kept: other rows may share parts of it. Nothing is added to a leaf's gradient. Throws what a node throws, and
  /// std::logic_error at a node with a hook behind it, which only a reducer has.
  std::vector<at::Tensor> gradients(const at::Tensor& loss);

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

// What training and the forced comparison do alike at a step: forward, backward, reduce, and write it all
// down.

/// One rank's forward and backward pass with everything traced. Owns the gradient hooks and the reducer.
class TracedStep {
 public:
  explicit TracedStep(const RankContext& context);
  ~TracedStep();
  TracedStep(const TracedStep&) = delete;
  TracedStep& operator=(const TracedStep&) = delete;

  struct Options {
    Keep keep = Keep::by_level;        ///< of the task's records and reduced gradients
    std::vector<int64_t> ids;          ///< this rank's rows of the step
    double learning_rate = 0;
    std::shared_ptr<const PreparedRows> prepared = {};  ///< as StepInput's
    std::vector<at::Tensor> choosing = {};  ///< by micro-step, as StepInput's; empty: none
    bool keep_passes = false;  ///< the passes' graphs are kept, and handed out
  };
  struct Outcome {
    double loss = 0;
    double gradient_norm = 0;
    at::Tensor gradient_norm_tensor;
    std::vector<std::pair<std::string, double>> scalars;
    int64_t kept_bytes =
        0;  ///< most that a pass kept for its backward; of the first step alone, the others' too
    std::vector<StepOutput> passes;  ///< with their graphs, if they were asked for
    std::optional<NotFinite> not_finite;  ///< as watch.nan_guard found it, the same on all ranks; nobody shall update
  };

  /// Leaves the reduced gradients in the parameters; where ranks share the update, this rank's parts of them and zeros beside them.
  /// Writes samples, random streams, control values,
  /// the task's records, loss, local gradients, collectives, reduced gradients and their norm into the open step of the
  /// trace.
  Outcome run(int64_t step, const Options& options);
  /// Hooks record and mutate only while this is true.
  void listen(bool on) { listening_ = on; }
  /// While this is true, gradients of the terms that tasks have marked in passes with `keep_passes` get random signs.
  void turn_signs(bool on) { turns_signs_ = on; }
  /// The signs that follow are those of this step, whatever came before it.
  void seed_signs(int64_t step);
  /// Random signs of that shape and type: other ones at each call, the same ones in each run.
  at::Tensor signs_like(const at::Tensor& tensor);

 private:
  /// Rows that one forward pass takes: a part of a micro-step.
  struct Pass {
    StepInput input;
    bool first_of_micro_step = true;
    bool last = false;
  };

  /// What was added to this rank's gradients of a step, by part ("micro 0", "loss TERM") and parameter.
  struct GradientPart {
    std::string name;
    std::vector<at::Tensor> gradients;  ///< undefined: none yet
  };

  /// Rows of a micro-step, and where each stands in the whole batch.
  struct PartitionedIds {
    const std::vector<int64_t>& ids;
    std::vector<int64_t> positions;
  };

  std::vector<Pass> passes_of(int64_t step, const Options& options);
  at::Tensor as_terms(const at::Tensor& values);
  StepOutput forward_of(const Pass& pass);
  StepOutput run_pass(const Pass& pass);
  at::Tensor on_local_gradient(std::size_t index, const at::Tensor& gradient);
  void begin_pass(const Pass& pass);
  void add_to_part(const std::string& name, std::size_t index, const at::Tensor& gradient);
  void take_terms(const StepOutput& output);
  void trace_parts(std::size_t index, const at::Tensor& local);
  void forget_gradients();
  void reduce_to_shards();
  void measure_norm(Outcome& outcome);
  void trace_forward(const Options& options, const std::vector<Pass>& passes,
                     const std::vector<StepOutput>& outputs, const Outcome& outcome);
  void trace_inputs(const Options& options, const std::vector<StepOutput>& outputs);
  void trace_schedules(const StepOutput& output);
  void trace_terms(const std::vector<StepOutput>& outputs);
  void trace_row_losses(const Options& options, const std::vector<StepOutput>& outputs);
  void trace_micro_steps(const Options& options, const std::vector<Pass>& passes, const std::vector<StepOutput>& outputs);
  void trace_int64(Phase phase, const char* name, const std::vector<int64_t>& values, std::span<const int64_t> ids);
  void trace_records(const Options& options, const std::vector<Pass>& passes,
                     const std::vector<StepOutput>& outputs);
  void trace_record(const Options& options, std::span<const StepOutput> parts, std::size_t which,
                    const std::string& suffix, const PartitionedIds& partitioned);
  void trace_gradients(const Options& options, const Outcome& outcome);
  void trace_reduced(const Options& options, const Outcome& outcome);
  std::vector<int64_t> row_positions(std::size_t first, std::size_t rows) const;

  // Exact arithmetic: exact_step.cpp.
  Outcome run_exactly(int64_t step, const Options& options);
  std::vector<Pass> turns_of(int64_t step, const Options& options);
  std::vector<at::Tensor> row_gradients(const Pass& pass, const StepOutput& output);
  void sum_over_ranks(Outcome& outcome, double divisor);
  void trace_rows(const Options& options, const std::vector<StepOutput>& outputs);
  bool exact() const { return rows_ != nullptr; }
  /// Are more than hashes kept of a tensor that asks for as much as this step's records?
  bool keeps_numbers() const {
    return context_.trace->enabled() && (keep_ == Keep::whole || context_.trace->level() > TraceLevel::hash);
  }
  bool guarded() const { return context_.config->watch.nan_guard != NanGuard::off; }
  void require_finite(int64_t step, Outcome& outcome);

  const RankContext& context_;
  std::vector<unsigned> hooks_;
  GradientGuard guard_;  ///< native arithmetic alone: exact arithmetic refuses rows that are not finite
  std::unique_ptr<GradientReducer> reducer_;  ///< native arithmetic alone
  std::unique_ptr<ExactRows> rows_;           ///< exact arithmetic alone
  std::unique_ptr<RowBackward> row_backward_;  ///< exact arithmetic alone
  std::vector<int64_t> positions_;            ///< exact: of the step's rows in the whole batch
  std::vector<uint64_t> local_hashes_, reduced_hashes_;
  std::vector<at::Tensor> accumulated_;  ///< by parameter: gradients of the passes before the last
  std::vector<GradientPart> parts_;      ///< of this step, if they are kept
  std::string micro_part_;               ///< the part that the open pass adds to; empty: parts are not kept
  std::optional<Shards> shards_;         ///< where ranks share the update
  int64_t step_ = 0;
  Keep keep_ = Keep::by_level;
  bool last_pass_ = true;
  bool kept_counted_ = false;
  bool listening_ = true;
  bool turns_signs_ = false;
  at::Generator generator_;
};

// How long steps take, and how much of them is communication.

/// Follows one rank's steps. The first tenth of them, one at least, is left out of what is said of a step:
/// memory and buckets take shape there.
class StepMeter {
 public:
  /// `meter`: null where nothing is communicated.
  explicit StepMeter(const CommunicationMeter* meter) : meter_(meter) {}
  void begin(double now_s);
  /// Adds the step to train_seconds and communication_seconds.
  void end(double now_s, RankResult& result);
  /// Writes step_seconds, communication_share and received_bytes.
  void fill(RankResult& result) const;

 private:
  struct Step {
    double seconds = 0;
    CommunicationMeter communication;
  };
  CommunicationMeter communicated() const { return meter_ == nullptr ? CommunicationMeter{} : *meter_; }

  const CommunicationMeter* meter_;
  Step begun_;  ///< the clock and the meter when the open step began
  std::vector<Step> steps_;
};

}  // namespace lockstep
