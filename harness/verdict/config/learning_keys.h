#pragma once
// Which keys of a run say what it learns, and which how it is executed, watched or compared.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// False of seed, trace, snapshots, evaluation, time limits, the way ranks are started and hold their buckets,
/// and how rows are fetched: two runs that differ in these alone train towards the same.
bool decides_learning(std::string_view key);

/// False of the seed and of what says when a run stops, what it writes down and keeps, how it is watched and begun, and which fault is
/// planted in it: two correct runs of one build and seed that differ in these alone have equal bits.
bool decides_bits(std::string_view key);

/// Do two correct runs of these configs have equal bits, if one build made both?
bool promise_equal_bits(const RunConfig& a, const RunConfig& b);

/// The rows of keys that decide learning as one text, whatever their order: equal for runs that train towards the same.
///
///   rows  every key of a run with its value (config_fields, or the rows of a report)
std::string learning_text(std::vector<std::pair<std::string, std::string>> rows);

}  // namespace lockstep
