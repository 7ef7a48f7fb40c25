#pragma once
// Tensors of which ranks hold parts, put together from the placements that their records state.

#include "harness/verdict/evidence/step_of_run.h"

namespace lockstep {

/// Puts whole records in the place of parts, where the parts of a tensor are all there: on every rank, as one that all hold alike,
/// with its values on rank 0; of what is a rank's own (local gradients, their parts, inputs) on the first of the ranks that
/// together hold one. A rank whose part is not what another rank holds of the same place keeps a whole of its own. What
/// cannot be put together stays as it is. A replicated tensor is hashed in one piece, if its values are there.
void put_together(StepOfRun& step);

/// The part of that tensor that the rank holds; null if it holds none.
const Record* find_part(const StepOfRun& step, std::size_t rank, Phase phase, const std::string& name);

}  // namespace lockstep
