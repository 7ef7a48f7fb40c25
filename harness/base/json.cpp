#include "harness/base/json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "harness/base/files.h"
#include "harness/base/text.h"

namespace lockstep {

std::string hex16(uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<uint64_t> from_hex16(std::string_view digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (digits.size() != 16 || digits.find_first_not_of(kDigits) != std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

std::string hash_in_hex(std::string_view bytes) { return hex16(XXH3_64bits(bytes.data(), bytes.size())); }

std::string long_hash_in_hex(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return hex16(hash.high64) + hex16(hash.low64);
}

std::string random_hex() {
  std::array<uint64_t, 2> bits{};
  // So few bytes come whole, or not at all.
  while (::getrandom(bits.data(), sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    if (errno != EINTR) throw MachineError(std::string("the kernel gives no random bytes: ") + std::strerror(errno));
  }
  return hex16(bits[0]) + hex16(bits[1]);
}

bool same_secret(std::string_view said, std::string_view secret) {
  if (said.size() != secret.size() || secret.empty()) return false;
  unsigned char differs = 0;
  for (std::size_t i = 0; i < secret.size(); ++i) differs = static_cast<unsigned char>(differs | (said[i] ^ secret[i]));
  return differs == 0;
}

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

namespace {

constexpr const char* kKey = "checksum";
/// Far beyond what we write; a file of nothing but brackets must not overflow the stack.
constexpr int kDeepest = 200;

uint64_t hash_of(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

/// Hashes items of arrays by place, and values of objects by name, whatever their order.
template <typename Json>
uint64_t content_hash(const Json& value, int depth) {
  if (depth > kDeepest) return 0;
  if (value.is_array()) {
    uint64_t hash = 1;
    for (const Json& item : value) {
      const uint64_t both[2] = {hash, content_hash(item, depth + 1)};
      hash = XXH3_64bits_withSeed(both, sizeof both, 1);
    }
    return hash;
  }
  if (value.is_object()) {
    uint64_t sum = 2;
    for (auto at = value.begin(); at != value.end(); ++at) {
      if (depth == 0 && at.key() == kKey) continue;
      // Names may hold any bytes before they are written: hashed as they are read back.
      const std::string name = Json(at.key()).dump(-1, ' ', false, Json::error_handler_t::replace);
      const uint64_t both[2] = {hash_of(name, 3), content_hash(at.value(), depth + 1)};
      sum += XXH3_64bits_withSeed(both, sizeof both, 2);
    }
    return sum;
  }
  return hash_of(value.dump(-1, ' ', false, Json::error_handler_t::replace), 4);
}

template <typename Json>
std::string checksum_of(const Json& object) {
  return hex16(content_hash(object, 0));
}

template <typename Json>
std::string problem_of(const Json& object) {
  if (!object.is_object()) return "is not a JSON object";
  const auto said = object.find(kKey);
  if (said == object.end()) return "has no checksum: an earlier lockstep or another program wrote it";
  const std::string found = checksum_of(object);
  const std::string expected = said->is_string() ? said->template get<std::string>() : said->type_name();
  if (expected == found) return "";
  return fmt::format("is damaged: its checksum is {} and its content gives {}", expected, found);
}

}  // namespace

void seal(nlohmann::json& object) { object[kKey] = checksum_of(object); }
void seal(nlohmann::ordered_json& object) { object[kKey] = checksum_of(object); }

std::string seal_problem(const nlohmann::json& object) { return problem_of(object); }
std::string seal_problem(const nlohmann::ordered_json& object) { return problem_of(object); }

std::optional<nlohmann::json> read_sealed(const std::string& path, std::string& problem) {
  const FileText file = read_file(path);
  if (!file) {
    problem = file.problem;
    return std::nullopt;
  }
  JsonProblem unread;
  nlohmann::json object = parse_json(file.text, &unread);
  problem = unread.message.empty() ? seal_problem(object) : "is damaged: " + unread.text();
  if (!problem.empty()) return std::nullopt;
  return object;
}

}  // namespace lockstep
