#pragma once
// Tensors of which ranks hold parts, put together from the placements that their records state.

#include <map>
#include <string>
#include <vector>

#include "harness/verdict/evidence/step_of_run.h"

namespace lockstep {

/// Puts whole records in the place of parts, where the parts of a tensor are all there: on every rank, as one that all hold alike,
/// with its values on rank 0; of what is a rank's own (local gradients, their parts, inputs) on the first of the ranks that
/// together hold one. A rank whose part is not what another rank holds of the same place keeps a whole of its own. What
/// cannot be put together stays as it is. A replicated tensor is hashed in one piece, if its values are there.
void put_together(StepOfRun& step);

/// The optimizers' state where parameters have owners: a rank moves what it owns, all take the result, and the state that a rank has of the others'
/// parameters says nothing. Wherever ranks end a step with one parameter in equal bits and with its state in others, all of them get the state of the
/// rank on which it moved; where no rank can be told, none has it. The number of updates is the largest. Steps are given in their order.
class OwnersState {
 public:
  void put_together(StepOfRun& step);

 private:
  std::map<std::string, std::vector<uint64_t>> last_;  ///< of state that ranks hold otherwise: its hash after the step before, by rank
  std::map<std::string, std::size_t> owners_;          ///< as far as steps have shown
};

/// The part of that tensor that the rank holds; null if it holds none.
const Record* find_part(const StepOfRun& step, std::size_t rank, Phase phase, const std::string& name);

}  // namespace lockstep
