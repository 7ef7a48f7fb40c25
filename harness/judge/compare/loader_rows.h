#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "harness/judge/compare/led_item.h"

// What loaders were asked for, by rank and fetch: do the ranks share out the reference's rows?

namespace lockstep {

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
