#pragma once
// Where a planted fault may act inside the energy trainer. The trainer asks once, when it is made, whether
// its mutant is one of these; every call stands behind a null check.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/trainers/core/task.h"
#include "losses/loss.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {

/// A mutant that is also an EnergyFault gets these calls, from its rank's own thread, once or more a step.
class EnergyFault {
 public:
  /// The trainer that the table's entry of such a bug must name.
  static constexpr std::string_view kTrainer = "energy";

  virtual ~EnergyFault() = default;

  /// What computes the loss of a step: a wrong loss is another Loss.
  virtual Loss& loss(int64_t /*step*/, Loss& right) { return right; }

  virtual const RandomStreams& streams(int64_t /*step*/, const RandomStreams& right) { return right; }
  /// The step that a row's streams are keyed by.
  virtual int64_t stream_step(int64_t step) { return step; }
  virtual uint64_t row_key(int64_t /*step*/, Purpose /*purpose*/, uint64_t key) { return key; }
  /// Numbers drawn beside those that the step needs.
  virtual uint64_t extra_draws(int64_t /*step*/, Purpose /*purpose*/) { return 0; }
  /// A row's key in the second of two passes over the energies, which must draw what the first one drew.
  virtual uint64_t replay_key(int64_t /*step*/, uint64_t key) { return key; }
  virtual double dropout(int64_t /*step*/, double probability) { return probability; }

  /// Samples whose content replaces that of the rows; the trace keeps the rows' ids.
  virtual std::vector<int64_t> content(int64_t /*step*/, std::vector<int64_t> ids) { return ids; }
  /// [rows, S] bool, true where the context has a real step
  virtual at::Tensor context_mask(int64_t /*step*/, at::Tensor mask) { return mask; }

  virtual EncodedRows encoded_context(int64_t /*step*/, EncodedRows rows) { return rows; }
  virtual at::Tensor encoded_action(int64_t /*step*/, at::Tensor action) { return action; }
  /// [rows, n, A], of which the first are predictions of layers of the action head, detached.
  virtual at::Tensor explicit_candidates(int64_t /*step*/, at::Tensor candidates,
                                         const std::vector<at::Tensor>& /*predictions*/) {
    return candidates;
  }
  /// What the loss divides energies by.
  virtual at::Tensor temperature(int64_t /*step*/, at::Tensor tau) { return tau; }
};

/// What a bug inside the trainer derives from.
class PlantedInEnergy : public Planted, public EnergyFault {
 public:
  using Planted::Planted;
};

}  // namespace lockstep
