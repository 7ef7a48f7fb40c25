#pragma once
// How many pairs of a context and an action chunk the data give, and how many a run needs.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "harness/lib/data/series_source.h"
#include "harness/verdict/config/trainer_spec.h"
#include "scenarios/energy/config.h"

namespace lockstep {

/// Number of pairs that a series of `steps` steps gives.
int64_t pairs_of(int64_t steps, const PairConfig& config);

/// The pairs of BasicMotions, which has 40 series of 100 steps in each part, or of generated series. Nothing
/// for source ts_files, whose series are known only when they are read, and where no pair fits into a series.
std::optional<SampleCounts> counted_pairs(const PairConfig& config);

/// "more come with a smaller data.context_steps (16), …": which keys give more pairs, with their values.
/// `part`: "training", "test", "held-out".
std::string how_to_get_pairs(const PairConfig& config, std::string_view part);

}  // namespace lockstep
