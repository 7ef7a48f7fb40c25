#pragma once
// Which keys of a run say what it learns, and which how it is executed, watched or compared.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// False of seed, trace, snapshots, evaluation, time limits, the way ranks are started and hold their buckets,
/// and how rows are fetched: two runs that differ in these alone train towards the same.
bool decides_learning(std::string_view key);

/// The rows of such keys as one text, whatever their order: equal for runs that train towards the same.
///
///   rows  every key of a run with its value (config_fields, or the rows of a report)
std::string learning_text(std::vector<std::pair<std::string, std::string>> rows);

}  // namespace lockstep
