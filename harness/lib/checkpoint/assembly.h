#pragma once
// The manifest's part about the state, put together from what each rank holds.

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/state.h"

namespace lockstep::checkpoint {

/// Of each kind a hash of what must be the same on all ranks: tensors' names, types, shapes and placements,
/// and the values.
nlohmann::json forms_of(const State& state);
/// The first kind in which they differ: "moments: rank 1 holds other tensors or values than rank 0"; empty:
/// in none.
std::string forms_problem(const nlohmann::json& first, const nlohmann::json& other, int rank);

/// What only this rank can tell: its slices, its own shapes and values.
nlohmann::json contribution_of(const State& state);

/// All ranks get the same from the same contributions. `problem`: "parameters: w: elements 4 to 6 are held by
/// no rank".
std::map<std::string, KindEntry> assemble(const State& state,
                                          const std::vector<nlohmann::json>& contributions,
                                          std::string& problem);

}  // namespace lockstep::checkpoint
