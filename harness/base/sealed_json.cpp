#include "harness/base/sealed_json.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "harness/base/hex.h"
#include "harness/base/json_text.h"
#include "harness/base/read_file.h"

namespace lockstep {
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
