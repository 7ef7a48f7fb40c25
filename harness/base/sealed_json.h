#pragma once
// JSON objects that carry a checksum of their own content, so that a damaged file is recognised.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace lockstep {

/// Puts the checksum of all other keys under the object's key "checksum": XXH3 of names, values and
/// structure, as 16 hex digits. The order of keys and white space do not matter, so a file that was only
/// reformatted still fits.
void seal(nlohmann::json& object);
void seal(nlohmann::ordered_json& object);

/// What is wrong with an object that should have been sealed: "is damaged: …", "has no checksum: …"; empty if
/// nothing is.
std::string seal_problem(const nlohmann::json& object);
std::string seal_problem(const nlohmann::ordered_json& object);

/// The object in a sealed file. Nothing if it cannot be had; `problem` then says what is wrong with the file
/// ("cannot be read: …", "is damaged: …"), in words that follow its name.
std::optional<nlohmann::json> read_sealed(const std::string& path, std::string& problem);

}  // namespace lockstep
