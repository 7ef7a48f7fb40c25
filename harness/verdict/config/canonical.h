#pragma once
// A run's config as text: what its hash is taken of, what run.json holds, what reports list.

#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/config/run_config.h"

namespace lockstep {

/// Every field as JSON with sorted keys: equal configs give equal text.
std::string canonical_json(const RunConfig& config);

/// 16 hex digits of the XXH3 hash of canonical_json.
std::string config_hash(const RunConfig& config);

/// The same of what is trained alone: neither how many ranks share a step's rows and by which means, nor what is written
/// down and kept, nor where the run stops. Runs of one such hash go on from each other's checkpoints; with native
/// arithmetic another number of ranks rounds differently from there on.
std::string training_hash(const RunConfig& config);

/// The inverse of canonical_json. Throws ConfigError on unknown keys, wrong types and values out of range.
RunConfig run_config_from_json(const std::string& text, const std::string& file_name);

/// Every field as (dotted key, value in words), the trainer's own behind the core's: ("data.source",
/// "basic_motions").
std::vector<std::pair<std::string, std::string>> config_fields(const RunConfig& config);

/// Equal in every field.
bool same_config(const RunConfig& a, const RunConfig& b);

}  // namespace lockstep
