#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/config/problems.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/config/yaml_tree.h"

// Lists of seeds as users write them.

namespace lockstep {

/// "A..B" (both included), "a,b,c" or "n". Returns what is wrong, or an empty text.
std::string parse_seeds(std::string_view text, std::vector<int64_t>& seeds);

/// The same from a config: also a list.
void read_seeds(const YamlNode& node, std::vector<int64_t>& seeds, Problems& problems);

// Keys of the random streams: what a draw depends on, as ranks take it and as the judge recomputes it.

/// The finalizer of MurmurHash3's 64-bit variant after a golden-ratio step, as in SplitMix64.
uint64_t mix_key(uint64_t x);

/// The seed of a run's random streams: its own, or another one for an A/A pair that differs in its draws.
int64_t stream_seed(const RunConfig& config);

/// Where a rank's keys begin: from the seed, and the rank too if streams are keyed by rank.
uint64_t stream_base(RankSeed mode, int64_t seed, int rank);

/// Key of a row's stream. `who` is the sample's id if streams are keyed by sample, else the row's place on
/// its rank.
uint64_t stream_row_key(uint64_t base, uint32_t purpose, int64_t step, uint64_t who);

/// A fingerprint of a set of row streams that adds up over ranks.
uint64_t stream_fingerprint(std::span<const uint64_t> row_keys);

}  // namespace lockstep
