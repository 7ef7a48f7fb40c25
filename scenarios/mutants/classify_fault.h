#pragma once
// Where a planted fault may act inside the trainer classify. The trainer asks once, when it is made, whether its mutant is one of these;
// every call stands behind a null check.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "losses/denominator.h"
#include "scenarios/mutants/planted.h"

namespace lockstep {

/// A mutant that is also a ClassifyFault gets these calls, from its rank's own thread, once or more a step.
class ClassifyFault {
 public:
  /// The trainer that the table's entry of such a bug must name.
  static constexpr std::string_view kTrainer = "classify";

  virtual ~ClassifyFault() = default;

  /// The factor of a pass's sum of losses, whose right value follows from the counts.
  virtual double loss_weight(int64_t /*step*/, double weight, const DenominatorCounts& /*counts*/) { return weight; }
  /// [rows], with gradient: the second loss of each row, before its weight.
  virtual at::Tensor auxiliary(int64_t /*step*/, at::Tensor losses_B) { return losses_B; }
  /// A row's dropout key where the backward pass computes the hidden layer again.
  virtual uint64_t recomputed_key(int64_t /*step*/, uint64_t key) { return key; }
};

/// What a bug inside the trainer derives from.
class PlantedInClassify : public Planted, public ClassifyFault {
 public:
  using Planted::Planted;
};

}  // namespace lockstep
