#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "harness/answer/results/results.h"

// What loaders were asked for, by rank and fetch: do the ranks share out the reference's rows?

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

/// A rank's rows.json: what its loaders were asked for, and what steps began with that is in no trace. An empty object:
/// there is none.
nlohmann::json rows_of(const std::string& dir, int rank);

struct TracedRanks {
  const std::string& dir;
  int count;
};

/// Judges the loaders of both one by one, up to the first difference. `takers`: so many of the run's ranks share out a
/// step's rows. `steps`: that were recorded.
void judge_rows(const TracedRanks& reference, const TracedRanks& run, int takers, int64_t steps, LedItem& item);

}  // namespace lockstep
