#pragma once
// JSON whose bytes follow from its content, so that any other bytes are damage.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

/// The object, sealed with its checksum, keys sorted, two spaces deep, with a line feed at its end.
std::string canonical_text(nlohmann::json object);

/// The object in such a text. `problem`: "not JSON, or cut short, …", "is damaged: …", or nothing.
nlohmann::json canonical_object(std::string_view text, std::string& problem);

/// Takes fields out of an object and remembers the first that is not what it should be: "step: a count
/// expected, found \"x\"".
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string& problem) : object_(object), problem_(problem) {}
  int64_t count(const char* name, int64_t least = 0);
  std::string text(const char* name);
  /// False where it is missing: an older format has none.
  bool flag(const char* name);
  /// 16 or 32 hex digits.
  std::string hash(const char* name, std::size_t digits);
  const nlohmann::json& list(const char* name);
  const nlohmann::json& object(const char* name);
  /// No other fields than `names` may stand there.
  void only(std::initializer_list<std::string_view> names);
  void expect(bool right, const std::string& field, const std::string& expected, const nlohmann::json& found);

 private:
  const nlohmann::json& at(const char* name);
  const nlohmann::json& object_;
  std::string& problem_;
};

}  // namespace lockstep::checkpoint
