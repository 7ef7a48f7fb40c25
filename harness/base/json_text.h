#pragma once
// JSON from files, pipes and sockets, read within limits: a text of nothing but brackets must not overflow the stack, and a field may be of any
// type. And its text on few lines.

#include <concepts>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

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

}  // namespace lockstep
