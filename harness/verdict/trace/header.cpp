#include "harness/verdict/trace/header.h"

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "harness/base/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 4> kLevelNames = {"off", "hash", "stats", "full"};

bool take_text(const Json& json, const char* key, std::string& to, std::string& why) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) {
    why = std::string("its header lacks the text \"") + key + '"';
    return false;
  }
  to = found->get<std::string>();
  return true;
}

bool take_count(const Json& json, const char* key, int& to, std::string& why) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer() || found->get<int64_t>() < 0 ||
      found->get<int64_t>() > 1'000'000) {
    why = std::string("its header lacks a sensible \"") + key + '"';
    return false;
  }
  to = found->get<int>();
  return true;
}

}  // namespace

std::string header_to_json(const TraceHeader& header) {
  Json json = {
      {"config_hash", header.config_hash},
      {"level", kLevelNames[static_cast<std::size_t>(header.level)]},
      {"rank", header.rank},
      {"started_by", header.started_by},
      {"trainer", header.trainer},
      {"world_size", header.world_size},
  };
  if (header.declared) json["declared"] = to_json(*header.declared);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<TraceHeader> header_from_json(std::string_view text, std::string& why) {
  const Json json = parse_json(text);
  if (!json.is_object()) {
    why = "its header is not a JSON object";
    return std::nullopt;
  }
  TraceHeader header;
  std::string level;
  if (!take_text(json, "config_hash", header.config_hash, why) ||
      !take_text(json, "trainer", header.trainer, why) ||
      !take_text(json, "started_by", header.started_by, why) || !take_text(json, "level", level, why) ||
      !take_count(json, "rank", header.rank, why) ||
      !take_count(json, "world_size", header.world_size, why)) {
    return std::nullopt;
  }
  if (header.rank >= header.world_size) {
    why = "its header names rank " + std::to_string(header.rank) + " of " + std::to_string(header.world_size);
    return std::nullopt;
  }
  if (const auto found = json.find("declared"); found != json.end()) {
    const std::optional<Declared> declared = declared_from_json(*found, header.world_size, why);
    if (!declared) return std::nullopt;
    header.declared = std::make_shared<const Declared>(*declared);
  }
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (level != kLevelNames[i]) continue;
    header.level = static_cast<TraceLevel>(i);
    return header;
  }
  why = "its header names an unknown level: " + level;
  return std::nullopt;
}

}  // namespace lockstep
