#include "harness/base/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

JsonProblem at_byte(std::string_view text, std::size_t byte, std::string message) {
  const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const std::size_t line_start = before.rfind('\n');
  JsonProblem problem;
  problem.line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
  problem.column =
      static_cast<int>(before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1)) + 1;
  problem.message = std::move(message);
  return problem;
}

/// The byte (from 1) at which the text is nested too deep; 0 if nowhere. Brackets inside strings do not
/// count. Behind the text's first mistake the count may be wrong, but no parser gets there.
std::size_t first_too_deep(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMostJsonDepth) return i + 1;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return 0;
}

template <class Json>
Json parse(std::string_view text, JsonProblem* problem) {
  JsonProblem found;
  Json value(Json::value_t::discarded);
  if (const std::size_t byte = first_too_deep(text); byte > 0) {
    found = at_byte(text, byte, fmt::format("nested deeper than {} levels", kMostJsonDepth));
  } else {
    try {
      value = Json::parse(text);
    } catch (const typename Json::parse_error& error) {
      found = at_byte(text, std::min(error.byte, text.size() + 1), "not JSON, or cut short");
    } catch (const typename Json::out_of_range&) {
      found = at_byte(text, 1, "not readable: it holds a number outside the range of a double");
    }
  }
  if (problem != nullptr) *problem = std::move(found);
  return value;
}

/// Appends the value, whose first line begins after `begun` columns and whose further ones are indented by `indent`.
void append_dense(std::string& out, const nlohmann::ordered_json& value, std::size_t begun, std::size_t indent, std::size_t width) {
  const std::string whole = value.dump();
  if (!value.is_structured() || value.empty() || begun + whole.size() <= width) {
    out += whole;
    return;
  }
  const std::string margin(indent + 2, ' ');
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) out += (out.back() == '{' || out.back() == '[' ? "\n" : ",\n") + line;
    line.clear();
  };
  out += value.is_object() ? '{' : '[';
  for (auto at = value.begin(); at != value.end(); ++at) {
    const std::string key = value.is_object() ? nlohmann::ordered_json(at.key()).dump() + ": " : "";
    const std::string text = key + at->dump();
    if (!line.empty() && line.size() + 2 + text.size() <= width) {
      line += ", " + text;
    } else {
      end_line();
      line = margin + key;
      append_dense(line, *at, line.size(), indent + 2, width);
    }
    if (line.find('\n') != std::string::npos) end_line();
  }
  end_line();
  out += '\n' + std::string(indent, ' ') + (value.is_object() ? '}' : ']');
}

}  // namespace

std::string JsonProblem::text() const {
  return message.empty() ? "" : fmt::format("{}, at line {}, column {}", message, line, column);
}

nlohmann::json parse_json(std::string_view text, JsonProblem* problem) {
  return parse<nlohmann::json>(text, problem);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonProblem* problem) {
  return parse<nlohmann::ordered_json>(text, problem);
}

void refuse_field(const std::string& place, std::string_view key, const std::string* found) {
  constexpr std::size_t kShown = 60;
  if (found == nullptr) throw ConfigError(fmt::format("{}: there is no '{}': it is damaged, or another program wrote it", place, key));
  throw ConfigError(fmt::format("{}: '{}' is {}{}, which cannot stand there: it is damaged, or another program wrote it", place, key, found->substr(0, kShown),
                                found->size() > kShown ? "…" : ""));
}

std::string dense_json(const nlohmann::ordered_json& value, std::size_t width) {
  std::string text;
  append_dense(text, value, 0, 0, width);
  return text + "\n";
}

}  // namespace lockstep
