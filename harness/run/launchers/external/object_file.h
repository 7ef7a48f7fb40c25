#pragma once
// A JSON object in a file of its own, by which processes tell each other something.

#include <cstdint>
#include <optional>
#include <string>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/json_text.h"

namespace lockstep {

/// Nothing where there is none yet, or what is there is no object of at most `most_bytes`.
std::optional<nlohmann::json> read_object(const std::string& path, uint64_t most_bytes);

/// What `take` makes of its fields; nothing where there is no object, or one with a field of another type: it is no word of a process of ours.
template <class Take>
auto read_fields(const std::string& path, uint64_t most_bytes, Take take) -> std::optional<decltype(take(std::declval<const JsonFields<>&>()))> {
  const auto object = read_object(path, most_bytes);
  if (!object) return std::nullopt;
  try {
    return take(JsonFields(*object, path));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Whole or not at all. `purpose`: creating, or keeping a secret. Throws MachineError.
void write_object(const std::string& path, const nlohmann::json& object, OpenFor purpose = OpenFor::creating);

}  // namespace lockstep
