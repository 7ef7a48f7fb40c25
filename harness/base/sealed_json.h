#pragma once
// JSON objects that carry a checksum of their own content, so that a damaged file is told from a true one.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace lockstep {

/// Puts the checksum of all other keys under the object's key "checksum": XXH3 of names, values and
/// structure, as 16 hex digits. Order of keys and white space count for nothing, so a file that was only laid
/// out anew still fits.
void seal(nlohmann::json& object);
void seal(nlohmann::ordered_json& object);

/// What is wrong with an object that `seal` should have seen: "is damaged: …", "has no checksum: …"; empty if
/// nothing is.
std::string seal_problem(const nlohmann::json& object);
std::string seal_problem(const nlohmann::ordered_json& object);

/// The object in a sealed file. Nothing if there is none, and then `problem` says what of the file is not as
/// it should be ("cannot be read: …", "is damaged: …"), to be read after its name.
std::optional<nlohmann::json> read_sealed(const std::string& path, std::string& problem);

}  // namespace lockstep
