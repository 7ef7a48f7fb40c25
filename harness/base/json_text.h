#pragma once
// JSON from files and pipes, read within limits: a text of nothing but brackets must not overflow the stack. And its text on few lines.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

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

/// The value's text on few lines: what fits into `width` columns stands on one, and short members stand beside each other. For what
/// is generated and kept in a repository, where a line a key would be ten thousand. Ends with a newline.
std::string dense_json(const nlohmann::ordered_json& value, std::size_t width = 180);

}  // namespace lockstep
