#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/ledger.h"

// Where a planted fault may act on training. The normal path has none: every call stands behind a null check.
// What acts inside a trainer (its loss, its rows' content, its random streams) has an interface of its own
// there.

namespace lockstep {

struct ParameterList;
struct SquaredNorms;
class Optimizer;
struct TrainingState;

/// Any rank's rows at any step, as the sampler partitions them.
using RowsOf = std::function<std::vector<int64_t>(int64_t step, int rank)>;

/// A planted bug; the tables in scenarios/mutants hold all. Calls come from the rank's own thread.
class Mutant {
 public:
  virtual ~Mutant() = default;

  /// Wrap the communicator: a fault that calls it wrongly goes above the ledger, one in what the network
  /// delivers goes below.
  virtual std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) { return comm; }
  virtual std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) { return comm; }

  /// Once, before rank 0's parameters are broadcast; false: they are not.
  virtual bool initial_parameters(ParameterList& /*parameters*/) { return true; }
  /// Before anything of a step happens.
  virtual void before_step(int64_t /*step*/) {}
  virtual std::vector<int64_t> rows(int64_t /*step*/, std::vector<int64_t> rows, const RowsOf& /*rows_of*/) {
    return rows;
  }
  virtual double learning_rate(int64_t /*step*/, double rate) { return rate; }
  /// A factor of the loss that is differentiated, as micro-steps have one.
  virtual double loss_factor(int64_t /*step*/) { return 1; }
  /// A parameter's gradient on this rank, before any reduction; returns what takes its place.
  virtual at::Tensor local_gradient(int64_t /*step*/, const std::string& /*parameter*/,
                                    const at::Tensor& gradient) {
    return gradient;
  }
  /// What this rank sends into the reduction in place of its local gradient of the step, which the trace has
  /// by then.
  virtual at::Tensor sent_gradient(int64_t /*step*/, const std::string& /*parameter*/,
                                   const at::Tensor& gradient) {
    return gradient;
  }
  /// false: gradients of the step's earlier micro-steps are gone when a later one begins.
  virtual bool keeps_micro_steps(int64_t /*step*/) { return true; }
  /// true: `term_gradient` is to be called in this step, whatever the trace keeps.
  virtual bool takes_terms(int64_t /*step*/) { return false; }
  /// What a named loss adds to a parameter's gradient on this rank in one micro-step, before the whole gradient is there.
  virtual void term_gradient(int64_t /*step*/, const std::string& /*term*/, const std::string& /*parameter*/,
                             const at::Tensor& /*gradient*/) {}
  /// false: the backward pass of this step goes past the reducer.
  virtual bool reduces(int64_t /*step*/) { return true; }
  /// After the reduction, before anything reads the gradients.
  virtual void reduced_gradients(int64_t /*step*/, ParameterList& /*parameters*/, Comm& /*comm*/) {}
  /// false: gradients of the step before stay and are added to.
  virtual bool zeroes_gradients(int64_t /*step*/) { return true; }
  /// Where ranks share the update: the norm of the whole gradient, made of these sums of squares.
  virtual double norm_of_shards(int64_t /*step*/, const SquaredNorms& /*squares*/, double norm) { return norm; }
  /// The norm that gradients are clipped by; a negative one: they are not clipped.
  virtual double clip_norm(int64_t /*step*/, double total_norm) { return total_norm; }
  virtual void before_update(int64_t /*step*/, const TrainingState& /*state*/) {}
  /// false: the optimizer's update of this step is left out.
  virtual bool updates(int64_t /*step*/) { return true; }
  /// Where ranks share the update: before their parts are gathered.
  virtual void after_update(int64_t /*step*/, const TrainingState& /*state*/) {}
  /// Of averaged weights, in the update of this step.
  virtual double average_decay(int64_t /*step*/, double decay) { return decay; }
};

/// What a fault may change around an update.
struct TrainingState {
  ParameterList& parameters;
  Optimizer& optimizer;
  Comm& comm;
  double learning_rate = 0;
};

// The trainable tensors of a model, as plain tensors in a named list.

/// Names read "group.tensor"; the group is what gradient signatures are given for.
struct ParameterList {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;  ///< leaves that require gradients

  /// Adds a leaf; returns it.
  at::Tensor add(const std::string& name, const at::Tensor& value) {
    at::Tensor leaf = value.detach().contiguous().requires_grad_(true);
    names.push_back(name);
    tensors.push_back(leaf);
    return leaf;
  }
};

}  // namespace lockstep

// What a trainer brings to the loop: a model, its loss and its evaluation. The loop knows nothing else of it.

namespace lockstep::sharding {
class Controls;
}

namespace lockstep {

/// The content of a step's rows, made ready before the step begins. What it is, its trainer knows.
class PreparedRows {
 public:
  virtual ~PreparedRows() = default;
};

/// The rows of one rank at one step.
struct StepInput {
  int64_t step = 0;
  std::vector<int64_t> ids;       ///< sample ids of this rank's rows of the micro-step, in order
  std::vector<int64_t> step_ids;  ///< of all micro-steps of this step
  int64_t micro_step = 0;
  /// Forward over rows [first_row, end_row) alone: a part of the rank's rows, all candidates.
  int64_t first_row = 0, end_row = 0;
  std::shared_ptr<const PreparedRows> prepared = {};  ///< rows of the step; null, or others: look them up
  /// Exact arithmetic: one row, or none. Its tensors have addresses and shapes that no layout changes, candidates
  /// stand in the order of the whole batch, and the loss has unit weight.
  bool exact = false;
  bool describes_rows = false;  ///< what each row holds and counts is wanted in the output
  std::vector<int64_t> positions = {};  ///< exact: where each of `ids` stands in the step's whole batch
  /// Marks what a row's gradient is added up from, such as the logits of its candidates, and gives the tensor to go on with. Empty:
  /// nobody asks how large these terms are.
  std::function<at::Tensor(const at::Tensor&)> as_terms = {};
  /// [rows of the micro-step, columns] float64: scores by which a loss that takes some of a row's candidates chooses them. Undefined:
  /// those that it computes itself.
  at::Tensor choosing_BN = {};
};

struct StreamUse {
  std::string name;          ///< "dropout"
  uint64_t fingerprint = 0;  ///< adds up over rows and ranks
  uint64_t draws = 0;
};

/// Numbers of each row that go into the trace, such as energies of its candidates.
struct StepRecord {
  Phase phase = Phase::scores;  ///< the loss's or one before it
  std::string name;
  at::Tensor rows;  ///< [rows of the pass, columns], detached
  /// What the columns are, such as sample ids of the candidates, under a name of their own; empty: nothing is said.
  std::string columns_name = {};
  std::vector<int64_t> columns = {};
};

/// A named part of a loss that is a weighted sum of several.
struct LossTerm {
  std::string name;
  double weight = 1;
  at::Tensor loss;  ///< scalar; `weight` times it is the part. Without a graph where it cannot be differentiated by itself
};

/// What is told of single rows besides their losses; empty where nothing is.
struct RowDescriptions {
  std::vector<int64_t> labels;
  std::vector<int64_t> counts;  ///< terms that count: time steps that are not padding
  std::vector<int64_t> widths;  ///< terms with padding
};

struct StepOutput {
  at::Tensor loss;                  ///< scalar; the mean over ranks of its gradients is the step's gradient
  at::Tensor row_losses_B;          ///< one a row, with gradient; loss is their weighted sum
  double row_weight = 1;            ///< of each row's loss in `loss`
  std::vector<LossTerm> terms = {};  ///< `loss` is their weighted sum; empty: it has one part, without a name
  std::vector<int64_t> row_inputs = {};  ///< exact, or asked for: of each row a hash of what it is made from, as the step took it
  RowDescriptions rows = {};             ///< if they were asked for
  double counted = 0;  ///< with `rows`: what these rows count where the loss is divided, so that it is their mean over that number
  double row_divisor = 1;  ///< exact: the step's loss is the sum of all ranks' and rows' `loss`, divided by this
  std::vector<StepRecord> records;  ///< what the loss is made from; the same ones of every pass
  std::vector<StreamUse> streams;
  /// Values besides the learning rate that steer the step, equal on all ranks, by name: a stop flag, a target.
  std::vector<std::pair<std::string, double>> controls;
  /// The same of several numbers each: points of a schedule such as noise levels.
  std::vector<std::pair<std::string, std::vector<double>>> schedules = {};
  std::vector<std::pair<std::string, double>> scalars;  ///< diagnostics by name; "loss" is added by the loop
};

enum class Evaluation { curve, last };

/// Tells that long work gets on.
using Heartbeat = std::function<void()>;

/// State beside the parameters that steps change without a gradient: running statistics. Equal on all ranks.
struct NamedBuffer {
  std::string name;  ///< "buffer/energy_mean"
  at::Tensor value;  ///< the buffer itself
};

/// One rank's replica of a trainer.
class Task {
 public:
  virtual ~Task() = default;
  virtual ParameterList& parameters() = 0;
  /// The content of these samples, or null if there is nothing to make ready. Called in another thread than
  /// `forward`, and at the same time.
  virtual std::shared_ptr<const PreparedRows> prepare_rows(const std::vector<int64_t>& /*ids*/) const {
    return nullptr;
  }
  /// Collective: every rank calls it at the same step.
  virtual StepOutput forward(const StepInput& input) = 0;
  /// Traced with the parameters, and kept in snapshots.
  virtual std::vector<NamedBuffer> buffers() { return {}; }
  /// What steers the coming step beside the loop's own values, equal on all ranks: a flag, a statistic that something is decided
  /// from. Only with control_guard.
  virtual void add_controls(int64_t /*step*/, sharding::Controls& /*controls*/) {}
  /// After a step's update: buffers take in what its forward passes saw. Collective.
  virtual void update_buffers() {}
  /// Metrics at a common number of candidates; rank 0 alone, no communication. `curve` is the short form.
  virtual std::map<std::string, double> evaluate(Evaluation kind, const Heartbeat& heartbeat) = 0;
  /// false: `forward` needs all rows of a micro-step at once, not a part of them.
  virtual bool takes_parts() const { return true; }
  /// Of a task that takes parts: rows of a pass, so that what it keeps for the way back stays in the processor's cache; 0: all.
  virtual int64_t rows_at_once() const { return 0; }
};

// What one rank trains with, as every part of its loop sees it.

struct RankContext {
  const RunConfig* config = nullptr;
  int rank = 0;
  Comm* comm = nullptr;  ///< the ledger's
  TraceWriter* trace = nullptr;
  Task* task = nullptr;
  Mutant* mutant = nullptr;  ///< or none
  RowsOf rows_of;            ///< as the sampler partitions them
  std::function<void(int64_t step, const std::string& operation)> heartbeat;
  std::function<double()> now_s;  ///< monotonic seconds

  RowsOf rows_ahead = {};  ///< as rows_of, for the thread that prepares rows: they share no state
  /// Where a rank's rows stand in a step's whole batch of so many rows as it is partitioned; none: as equal rows are partitioned.
  std::function<std::vector<int64_t>(int64_t all_rows, int rank)> positions_of = {};
  std::function<void(double)> show = {};      ///< takes the newest value of the trainer's shown metric, or none
  const CommunicationMeter* meter = nullptr;  ///< the ledger's, or none

  /// This rank's rows at a step, in order, as a fault may have changed them.
  std::vector<int64_t> rows(int64_t step) const { return rows(step, rows_of(step, rank)); }
  /// The same of rows that have been partitioned already.
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows) const {
    return mutant == nullptr ? rows : mutant->rows(step, std::move(rows), rows_of);
  }
};

// SGD, Adam and AdamW in the arithmetic of Python's torch.optim (single-tensor form), bit for bit; and
// clipping.

/// torch::optim::Adam does not give Python's bits (it differs at the second step); this does.
class Optimizer {
 public:
  Optimizer(const RunConfig& config, const ParameterList& parameters);

  /// One update from the parameters' gradients at learning rate `lr`. Every parameter must have a gradient.
  void step(double lr);

  /// Moments by parameter; undefined tensors where there is none (yet). Faults and snapshots reach them.
  std::vector<at::Tensor>& first_moments() { return first_moments_; }
  std::vector<at::Tensor>& second_moments() { return second_moments_; }
  int64_t& updates() { return updates_; }
  RunConfig& config() { return config_; }

 private:
  void sgd(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr);
  void adam(at::Tensor& parameter, at::Tensor gradient, std::size_t index, double lr);

  RunConfig config_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> first_moments_, second_moments_;
  int64_t updates_ = 0;
};

/// L2 norm of all gradients together, as torch.nn.utils.get_total_norm computes it. [] float32.
at::Tensor total_gradient_norm(const std::vector<at::Tensor>& parameters);

/// torch.nn.utils.clip_grad_norm_ with a norm that is known already.
void clip_gradients(const std::vector<at::Tensor>& parameters, const at::Tensor& total_norm, double max_norm);

// Which part of each parameter a rank updates, where ranks share the update (update: sharded).
//
// V = world size, R = rows of a parameter (dimension 0).

/// Sums of squares of a gradient's elements, of which the norm of the whole gradient is made.
struct SquaredNorms {
  double own_shards = 0;  ///< of this rank's shards
  double all_shards = 0;  ///< of all ranks' shards
  double replicated = 0;  ///< of the tensors that every rank holds whole
};

/// A parameter's rows are cut as torch.chunk cuts them: ceil(R / V) each, the last ranks have fewer or none. One with fewer rows
/// than ranks, or without dimensions, stays whole on every rank, which all update it alike.
class Shards {
 public:
  Shards(const ParameterList& parameters, int rank, int world_size);

  std::size_t size() const { return placements_.size(); }
  bool is_sharded(std::size_t parameter) const { return placements_[parameter].shard; }
  /// As traces describe it.
  const Placement& placement(std::size_t parameter) const { return placements_[parameter]; }
  /// A view of this rank's rows of a tensor of the parameter's shape; of a parameter that is not sharded the tensor itself.
  at::Tensor own(std::size_t parameter, const at::Tensor& whole) const;
  /// Zeroes what other ranks own.
  void drop_others(std::size_t parameter, at::Tensor whole) const;
  /// Collective: the whole tensors of all ranks' parts, in the parameters' order and of one type; undefined ones stay so. What is not
  /// sharded comes back itself.
  std::vector<at::Tensor> gathered(Comm& comm, const std::vector<at::Tensor>& parts, std::string_view tag) const;
  /// Collective ("update.norm"): of the gradients in `parts`, in float64.
  SquaredNorms squared_norms(Comm& comm, const std::vector<at::Tensor>& parts) const;

 private:
  int64_t rows_at_most(std::size_t parameter) const;

  int rank_, world_size_;
  std::vector<Placement> placements_;
  std::vector<int64_t> rows_;  ///< that this rank owns, by parameter
};

/// Nothing where every rank makes the whole update, or is alone.
std::optional<Shards> shards_of(const RunConfig& config, const ParameterList& parameters, const Comm& comm);

// Random numbers without a generator's hidden state: every draw is a function of (seed, purpose, step, who,
// position).

enum class Purpose : uint32_t { context_noise = 1, dropout = 2, negative_noise = 3, negative_shuffle = 4 };

/// Keys of the streams that one rank draws from.
///
/// keyed: a row's stream belongs to its sample, whatever rank it is on, so that the layout changes nothing;
/// plus_rank: to the row's place on this rank and seed + rank; same: to the row's place and the seed alone,
/// on every rank alike.
class RandomStreams {
 public:
  RandomStreams(RankSeed mode, int64_t seed, int rank);

  uint64_t row_key(Purpose purpose, int64_t step, int64_t sample_id, int64_t local_row) const;
  /// Stream of a (row, candidate) pair.
  uint64_t pair_key(uint64_t row_key, int64_t column_id, int64_t local_column) const;

 private:
  RankSeed mode_;
  uint64_t base_;
};

/// Fills with uniforms in [0, 1), multiples of 2^-24; element d depends on (key, d) alone.
void fill_uniform(uint64_t key, std::span<float> out);

/// Fills with 0 (probability p) and 1 / (1 - p): a dropout mask, drawn as fill_uniform draws.
void fill_dropout(uint64_t key, float p, std::span<float> out);

}  // namespace lockstep
