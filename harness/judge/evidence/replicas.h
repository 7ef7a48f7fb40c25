#pragma once

#include <string>
#include <vector>

#include "harness/judge/evidence/parts.h"

// Which ranks of a run hold the same parameters: what replicas reduce together, and whose rows make the batch.

namespace lockstep {

/// The ranks whose local gradients are reduced with rank 0's: as the header declares, or else all, if each holds rank
/// 0's parameters, or shards of parameters whose gradients it has whole; none where the traces do not tell.
std::vector<int> ranks_reduced_together(const StepOfRun& step);

/// The ranks whose rows together are the step's batch. A rank that has an earlier rank's rows and holds other parameters, or other
/// shards of them, is a part of the same replica.
std::vector<int> ranks_with_rows(const StepOfRun& step);

/// The first of these ranks whose local gradient of some tensor has another shape or type than the reference's; where ranks of the
/// reference do not have one form, or none that a rank here has, than most have. -1: none.
struct OtherForm {
  int rank = -1;
  std::string tensor, expected, actual;
  bool other_shape = false;
};
OtherForm local_gradient_of_another_form(const StepOfRun& step, const std::vector<int>& ranks, const StepOfRun& reference);

}  // namespace lockstep
