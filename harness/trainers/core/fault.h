#pragma once
// Where a planted fault may act on training. The normal path has none: every call stands behind a null check.
// What acts inside a trainer (its loss, its rows' content, its random streams) has an interface of its own
// there.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/trainers/comm/comm.h"

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

}  // namespace lockstep
