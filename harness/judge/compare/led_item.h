#pragma once

#include <cstdint>
#include <string>

#include "harness/answer/results/results.h"

namespace lockstep {

/// One thing that a step does, over all steps.
struct LedItem {
  std::string name;  ///< "rows", "start weights", "loss", "reduction", "gradients", "clip", "rate", "update",
                     ///< "buffers", "replicas"
  Mark state = Mark::none;
  int64_t steps = 0;       ///< at which it was compared
  int64_t first = -1;      ///< of `different` and `undecided`: the step
  int rank = kAllRanks;    ///< the one rank that differs
  std::string where = {};  ///< tensor
  std::string text = {};   ///< in words; of what agrees too where there is something to say
  std::string code = {};   ///< the cause, where it is clear from this alone
};

}  // namespace lockstep
