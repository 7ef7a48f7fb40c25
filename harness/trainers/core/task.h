#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/fault.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/record.h"
#include "harness/verdict/trace/writer.h"

// The trainable tensors of a model, as plain tensors in a named list.

namespace lockstep {

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

}  // namespace lockstep
