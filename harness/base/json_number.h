#pragma once
// Doubles in JSON, whose numbers know neither NaN nor infinities: these stand as "nan", "inf", "-inf", never
// as null.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/base/hex.h"

namespace lockstep {

/// A number with all its digits, or one of the three words.
template <class Json = nlohmann::json>
Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/// {"value", "bits"}: the value for people, its 64 bits for those who compare.
template <class Json = nlohmann::json>
Json json_number_and_bits(double value) {
  return {{"value", json_number<Json>(value)}, {"bits", hex16(std::bit_cast<uint64_t>(value))}};
}

/// What `json_number` wrote; nothing if it is neither a number nor one of the words.
template <class Json>
std::optional<double> number_in_json(const Json& json) {
  if (json.is_number()) return json.template get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace lockstep
