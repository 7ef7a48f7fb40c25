#pragma once

#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

// Bits as hexadecimal digits, and hashes of bytes and secrets that are written that way.

namespace lockstep {

/// 16 digits, small letters.
std::string hex16(uint64_t value);

/// What `hex16` gave; nothing if the text is not 16 such digits.
std::optional<uint64_t> from_hex16(std::string_view digits);

/// XXH3 of 64 bits in 16 digits.
std::string hash_in_hex(std::string_view bytes);

/// XXH3 of 128 bits in 32 digits, for what must be told apart among very many.
std::string long_hash_in_hex(std::string_view bytes);

/// 128 bits of the kernel's randomness in 32 digits: a secret, or a name that nothing else has. Throws MachineError.
std::string random_hex();

/// Are they equal? As long for a wrong text as for the right one, so that a secret cannot be found digit by digit.
bool same_secret(std::string_view said, std::string_view secret);

// Keyed draws without a state: the same key gives the same number on every machine.

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection of 64 bits in which every bit of
/// the input affects every bit of the output.
constexpr uint64_t mix64(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/// A key that depends on every part and on their order.
template <typename... Parts>
constexpr uint64_t keyed(uint64_t first, Parts... rest) {
  uint64_t key = mix64(first);
  ((key = mix64(key ^ mix64(static_cast<uint64_t>(rest) + 0x632be59bd9b4e019u))), ...);
  return key;
}

/// In [0, 1), from the upper 53 bits.
constexpr double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Doubles in JSON, whose numbers know neither NaN nor infinities: these stand as "nan", "inf", "-inf", never
// as null.

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

// JSON from files, pipes and sockets, read within limits: a text of nothing but brackets must not overflow the stack, and a field may be of any
// type. And its text on few lines.

/// Levels of objects and lists. What this program writes has fewer than 20.
inline constexpr std::size_t kMostJsonDepth = 100;

/// What keeps a text from being read as JSON.
struct JsonProblem {
  std::string message;  ///< "not JSON, or cut short", "nested deeper than 100 levels"; empty: nothing
  int line = 0;         ///< from 1
  int column = 0;       ///< from 1, in bytes
  /// "not JSON, or cut short, at line 3, column 7".
  std::string text() const;
};

/// The text's value; a discarded one (no object, no list, no text) if it cannot be read, and then `problem`
/// says why.
nlohmann::json parse_json(std::string_view text, JsonProblem* problem = nullptr);
/// The same with keys in the text's order.
nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonProblem* problem = nullptr);

/// The value as a bool, a whole number that T can hold, a double, a text, or a vector or map of these; nothing where it is of another type.
template <class T, class Json>
std::optional<T> json_as(const Json& value) {
  if constexpr (std::same_as<T, Json>) {
    return value;
  } else if constexpr (std::same_as<T, bool>) {
    if (value.is_boolean()) return value.template get<bool>();
  } else if constexpr (std::integral<T>) {
    if (value.is_number_unsigned() && std::in_range<T>(value.template get<uint64_t>())) return static_cast<T>(value.template get<uint64_t>());
    if (value.is_number_integer() && !value.is_number_unsigned() && std::in_range<T>(value.template get<int64_t>())) return static_cast<T>(value.template get<int64_t>());
  } else if constexpr (std::floating_point<T>) {
    if (value.is_number()) return value.template get<T>();
  } else if constexpr (std::same_as<T, std::string>) {
    if (value.is_string()) return value.template get<std::string>();
  } else if constexpr (requires { typename T::mapped_type; }) {
    if (!value.is_object()) return std::nullopt;
    T all;
    for (auto at = value.begin(); at != value.end(); ++at) {
      auto one = json_as<typename T::mapped_type>(at.value());
      if (!one) return std::nullopt;
      all.emplace(at.key(), *std::move(one));
    }
    return all;
  } else {
    if (!value.is_array()) return std::nullopt;
    T all;
    for (const Json& each : value) {
      auto one = json_as<typename T::value_type>(each);
      if (!one) return std::nullopt;
      all.push_back(*std::move(one));
    }
    return all;
  }
  return std::nullopt;
}

/// Throws ConfigError: "PLACE: there is no 'key'", or "PLACE: 'key' is 5, which is not what should stand there". `found` null: it is not there.
[[noreturn]] void refuse_field(const std::string& place, std::string_view key, const std::string* found);

/// The fields of a JSON object that others wrote. One of another type than is asked for throws ConfigError, with the object's place (a file's path) and
/// the key. `object` must outlive this, and may be no object at all.
template <class Json = nlohmann::json>
class JsonFields {
 public:
  JsonFields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  bool has(const char* key) const { return object_.is_object() && object_.contains(key); }
  template <class T>
  T at(const char* key) const {
    if (!has(key)) refuse_field(place_, key, nullptr);
    return as<T>(object_[key], key);
  }
  template <class T>
  T value(const char* key, T otherwise) const {
    return has(key) ? as<T>(object_[key], key) : std::move(otherwise);
  }
  std::string value(const char* key, const char* otherwise) const { return value<std::string>(key, otherwise); }

 private:
  template <class T>
  T as(const Json& value, const char* key) const {
    if (auto read = json_as<T>(value)) return *std::move(read);
    const std::string found = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    refuse_field(place_, key, &found);
  }
  const Json& object_;
  std::string place_;
};

/// The value's text on few lines: what fits into `width` columns stands on one, and short members stand beside each other. For what
/// is generated and kept in a repository, where a line a key would be ten thousand. Ends with a newline.
std::string dense_json(const nlohmann::ordered_json& value, std::size_t width = 180);

// JSON objects that carry a checksum of their own content, so that a damaged file is recognised.

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
