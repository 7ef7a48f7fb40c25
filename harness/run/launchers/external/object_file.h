#pragma once
// A JSON object in a file of its own, by which processes tell each other something.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace lockstep {

/// Nothing where there is none yet, or what is there is no object of at most `most_bytes`.
std::optional<nlohmann::json> read_object(const std::string& path, uint64_t most_bytes);

/// Whole or not at all. Throws MachineError.
void write_object(const std::string& path, const nlohmann::json& object);

}  // namespace lockstep
