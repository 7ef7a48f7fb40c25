#pragma once
// Doubles and enums as results.json writes and reads them. Of the files that write and read results alone.

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "harness/plan/question.h"
#include "harness/results/results.h"

namespace lockstep::results_fields {

using Json = nlohmann::ordered_json;

/// A number as it is; NaN and infinities as "nan", "inf", "-inf".
inline Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

/// A statistic: its value for people, its bits for those who compare.
inline Json exact(double value) {
  char bits[17] = {};
  auto raw = std::bit_cast<uint64_t>(value);
  for (int i = 15; i >= 0; --i, raw >>= 4) bits[i] = "0123456789abcdef"[raw & 15];
  return Json{{"value", number(value)}, {"bits", std::string(bits)}};
}

inline double read_number(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const std::string text = json.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("\"" + text + "\" is not a number");
}

/// The bits; throws if the value beside them says something else.
inline double read_exact(const Json& json) {
  const std::string text = json.at("bits").get<std::string>();
  uint64_t raw = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), raw, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16) {
    throw std::runtime_error("\"" + text + "\" is not 16 hexadecimal digits");
  }
  const double value = std::bit_cast<double>(raw), said = read_number(json.at("value"));
  if (value != said && !(std::isnan(value) && std::isnan(said))) {
    throw std::runtime_error("value " + json.at("value").dump() + " and bits " + text + " disagree");
  }
  return value;
}

inline Json interval(const Interval& i) {
  return {{"low", exact(i.low)}, {"high", exact(i.high)}, {"level", i.level}};
}

inline Interval read_interval(const Json& json) {
  return {read_exact(json.at("low")), read_exact(json.at("high")), read_number(json.at("level"))};
}

inline VerdictKind read_verdict(const Json& json) {
  const std::string name = json.get<std::string>();
  for (VerdictKind kind : {VerdictKind::identical, VerdictKind::within_envelope, VerdictKind::equivalent,
                           VerdictKind::divergent, VerdictKind::inconclusive, VerdictKind::failed}) {
    if (name == name_of(kind)) return kind;
  }
  throw std::runtime_error("unknown verdict \"" + name + "\"");
}

inline std::string read_question(const Json& json) {
  std::string name = json.get<std::string>();
  if (find_question(name) != nullptr) return name;
  throw std::runtime_error("unknown question \"" + name + "\"");
}

/// null, or what `write` makes of it.
template <typename T, typename F>
Json optional(const std::optional<T>& value, F write) {
  return value ? Json(write(*value)) : Json(nullptr);
}

template <typename F>
auto read_optional(const Json& json, F read) -> std::optional<decltype(read(json))> {
  if (json.is_null()) return std::nullopt;
  return read(json);
}

template <typename T, typename F>
Json list(const std::vector<T>& values, F write) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(write(value));
  return array;
}

template <typename F>
auto read_list(const Json& json, F read) {
  if (!json.is_array())
    throw std::runtime_error(std::string("a list was expected, found ") + json.type_name());
  std::vector<decltype(read(json))> values;
  for (const Json& value : json) values.push_back(read(value));
  return values;
}

}  // namespace lockstep::results_fields
