#pragma once
// States that a run kept in its trace, to go on from or to compute at.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Raw values by name, as a snapshot in a trace holds them: parameters by their names, "first_moment/NAME",
/// "second_moment/NAME", "updates", buffers.
using Snapshot = std::map<std::string, std::vector<std::byte>>;

/// Of those steps, from a trace; `wide`: what is kept in float32 is given in float64. Throws std::runtime_error naming a
/// step of which it holds none.
std::map<int64_t, Snapshot> read_snapshots(const std::string& trace_path, const std::vector<int64_t>& steps,
                                           bool wide = false);

}  // namespace lockstep
