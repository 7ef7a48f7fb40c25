#pragma once
// results.json: written, read and described, all from results_description.h.

#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// A whole document. Statistics stand as {"value", "bits"}; NaN and infinities are strings, never null.
std::string results_to_json(const Results& results);
/// Throws std::runtime_error on malformed text or a schema version that this build does not know.
Results results_from_json(const std::string& text, const std::string& file_name);

/// JSON Schema (draft-07) of what results_to_json writes; `lockstep schema results` prints it.
std::string results_schema();

}  // namespace lockstep
