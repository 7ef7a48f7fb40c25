#pragma once
// How many pairs of a context and an action chunk the data give, and how many a run needs.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/config/run_config.h"

namespace lockstep {

/// Pairs in each part of the data.
struct PairCounts {
  int64_t train = 0, holdout = 0, test = 0;
};

// Fixed by the archive's files: so many series of so many steps in each part.
inline constexpr int kBasicMotionsSeries = 40;
inline constexpr int kBasicMotionsSteps = 100;

/// Number of pairs that a series of `steps` steps gives.
int64_t pairs_of(int64_t steps, const DataConfig& config);

/// The pairs of BasicMotions, which has 40 series of 100 steps in each part, or of generated series. Nothing
/// of source ts_files, whose series are known when they are read, and where nothing fits into a series.
std::optional<PairCounts> counted_pairs(const DataConfig& config);

/// The fewest training pairs of which a step's rows can be dealt.
int64_t pairs_of_a_step(const RunConfig& config);

/// "more come with a smaller data.context_steps (16), …": which keys give more pairs, with their values.
/// `part`: "training", "test", "held-out".
std::string how_to_get_pairs(const DataConfig& config, const std::string& part);

/// What is wrong if the data have too few training pairs for a step of the run; empty if nothing.
std::string too_few_pairs(const RunConfig& config, const PairCounts& pairs);

}  // namespace lockstep
