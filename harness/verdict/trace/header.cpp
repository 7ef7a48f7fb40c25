#include "harness/verdict/trace/header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>

#include "harness/base/json.h"
#include "harness/base/text.h"

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

namespace {

/// What is wrong with a declaration; caught where it is read.
class Wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void refuse(const std::string& key, const std::string& expected) {
  throw Wrong("its header declares \"" + key + "\", which is not " + expected);
}

/// A mistyped key would silence what it should bring.
void require_known(const Json& json, std::span<const std::string_view> keys) {
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const std::string_view near = nearest(key, keys);
    throw Wrong("its header declares \"" + key + "\", which is not a key of a declaration" +
                (near.empty() ? std::string() : "; did you mean \"" + std::string(near) + "\"?"));
  }
}

void take(const Json& json, const char* key, std::string& to) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (!found->is_string()) refuse(key, "a text");
  to = found->get<std::string>();
}

void take_one_of(const Json& json, const char* key, std::string& to, const std::set<std::string>& known,
                 const char* expected) {
  take(json, key, to);
  if (!to.empty() && !known.contains(to)) refuse(key, expected);
}

void take(const Json& json, const char* key, double& to) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (!found->is_number() || !(found->get<double>() >= 0) || !std::isfinite(found->get<double>())) {
    refuse(key, "a finite number of 0 or more");
  }
  to = found->get<double>();
}

void take(const Json& json, const char* key, int64_t& to) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (!found->is_number_integer() || found->get<int64_t>() < 1) refuse(key, "a whole number of 1 or more");
  to = found->get<int64_t>();
}

std::vector<int> ranks_of(const Json& json, const std::string& key, int world_size) {
  std::set<int> ranks;
  const bool list = json.is_array() && !json.empty();
  for (const Json& rank : list ? json : Json::array()) {
    const bool fits = rank.is_number_integer() && rank.get<int64_t>() >= 0 && rank.get<int64_t>() < world_size;
    if (!fits || !ranks.insert(rank.get<int>()).second) refuse(key, "a list of different ranks of this run");
  }
  if (!list) refuse(key, "a list of ranks");
  return {ranks.begin(), ranks.end()};
}

DeclaredOptimizer optimizer_of(const Json& json) {
  DeclaredOptimizer optimizer;
  static constexpr std::string_view kKeys[] = {"name", "momentum", "weight_decay", "eps", "betas"};
  if (!json.is_object()) refuse("optimizer", "an object");
  require_known(json, kKeys);
  take(json, "name", optimizer.name);
  if (optimizer.name.empty()) refuse("optimizer", "an object with a \"name\"");
  take(json, "momentum", optimizer.momentum);
  take(json, "weight_decay", optimizer.weight_decay);
  take(json, "eps", optimizer.eps);
  if (const auto betas = json.find("betas"); betas != json.end()) {
    if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() || !(*betas)[1].is_number()) {
      refuse("betas", "a list of two numbers");
    }
    optimizer.beta1 = (*betas)[0].get<double>();
    optimizer.beta2 = (*betas)[1].get<double>();
  }
  return optimizer;
}

DeclaredParameters parameters_of(const Json& json) {
  DeclaredParameters parameters;
  if (!json.is_object() || !json.contains("prefix")) refuse("parameters", "a list of objects with a \"prefix\"");
  constexpr std::string_view kKeys[] = {"prefix", "role", "rate_factor", "weight_decay"};
  require_known(json, kKeys);
  take(json, "prefix", parameters.prefix);
  take(json, "role", parameters.role);
  take(json, "rate_factor", parameters.rate_factor);
  if (json.contains("weight_decay")) take(json, "weight_decay", parameters.weight_decay.emplace());
  return parameters;
}

/// Every rank stands in one group.
void require_partition(const std::vector<std::vector<int>>& groups, int world_size) {
  std::set<int> seen;
  for (const std::vector<int>& ranks : groups) {
    for (const int rank : ranks) {
      if (!seen.insert(rank).second) refuse("replicas", "a list of groups without a rank in common");
    }
  }
  if (!groups.empty() && static_cast<int>(seen.size()) != world_size) {
    refuse("replicas", "a list of groups that hold every rank of this run");
  }
}

Declared read(const Json& json, int world_size) {
  constexpr std::string_view kKeys[] = {"strip_prefixes", "parameters", "optimizer",          "clip_norm", "accumulation",
                                        "global_batch",   "base_rate",  "precision",          "gradient_reduction",
                                        "groups",         "replicas",        "streams",            "average_decay"};
  Declared declared;
  if (!json.is_object()) refuse("declared", "an object");
  require_known(json, kKeys);
  if (const auto found = json.find("strip_prefixes"); found != json.end()) {
    for (const Json& prefix : *found) {
      if (!found->is_array() || !prefix.is_string()) refuse("strip_prefixes", "a list of texts");
      declared.strip_prefixes.push_back(prefix.get<std::string>());
    }
  }
  if (const auto found = json.find("parameters"); found != json.end()) {
    if (!found->is_array()) refuse("parameters", "a list of objects with a \"prefix\"");
    for (const Json& each : *found) declared.parameters.push_back(parameters_of(each));
  }
  if (const auto found = json.find("optimizer"); found != json.end()) declared.optimizer = optimizer_of(*found);
  take(json, "clip_norm", declared.clip_norm);
  take(json, "accumulation", declared.accumulation);
  take(json, "global_batch", declared.global_batch);
  take(json, "base_rate", declared.base_rate);
  take_one_of(json, "precision", declared.precision, {"float32", "float64", "bfloat16", "float16"},
              "float32, float64, bfloat16 or float16");
  take_one_of(json, "gradient_reduction", declared.gradient_reduction, {"mean", "sum"}, "mean or sum");
  if (const auto found = json.find("groups"); found != json.end()) {
    if (!found->is_object()) refuse("groups", "an object of lists of ranks");
    for (const auto& [name, ranks] : found->items()) declared.groups[name] = ranks_of(ranks, "groups", world_size);
  }
  if (const auto found = json.find("replicas"); found != json.end()) {
    if (!found->is_array()) refuse("replicas", "a list of lists of ranks");
    for (const Json& ranks : *found) declared.replicas.push_back(ranks_of(ranks, "replicas", world_size));
    require_partition(declared.replicas, world_size);
  }
  if (const auto found = json.find("streams"); found != json.end()) {
    if (!found->is_object()) refuse("streams", "an object of texts");
    for (const auto& [name, state] : found->items()) {
      take_one_of(*found, name.c_str(), declared.streams[name], {"rank", "same", "sample"}, "rank, same or sample");
    }
  }
  take(json, "average_decay", declared.average_decay);
  return declared;
}

}  // namespace

const DeclaredParameters* entry_of(const std::vector<DeclaredParameters>& all, std::string_view parameter) {
  const DeclaredParameters* longest = nullptr;
  for (const DeclaredParameters& each : all) {
    if (parameter.starts_with(each.prefix) && (!longest || each.prefix.size() > longest->prefix.size())) {
      longest = &each;
    }
  }
  return longest;
}

std::optional<Declared> declared_from_json(const Json& json, int world_size, std::string& why) {
  try {
    return read(json, world_size);
  } catch (const Wrong& wrong) {
    why = wrong.what();
    return std::nullopt;
  }
}

Json to_json(const Declared& declared) {
  Json json = Json::object();
  if (!declared.strip_prefixes.empty()) json["strip_prefixes"] = declared.strip_prefixes;
  for (const DeclaredParameters& each : declared.parameters) {
    Json entry = {{"prefix", each.prefix}, {"rate_factor", each.rate_factor}};
    if (!each.role.empty()) entry["role"] = each.role;
    if (each.weight_decay) entry["weight_decay"] = *each.weight_decay;
    json["parameters"].push_back(std::move(entry));
  }
  if (const auto& it = declared.optimizer) {
    json["optimizer"] = {{"name", it->name},   {"momentum", it->momentum},
                         {"eps", it->eps},     {"weight_decay", it->weight_decay},
                         {"betas", {it->beta1, it->beta2}}};
  }
  if (declared.clip_norm > 0) json["clip_norm"] = declared.clip_norm;
  if (declared.accumulation > 1) json["accumulation"] = declared.accumulation;
  if (declared.global_batch > 0) json["global_batch"] = declared.global_batch;
  if (declared.base_rate > 0) json["base_rate"] = declared.base_rate;
  if (!declared.precision.empty()) json["precision"] = declared.precision;
  if (!declared.gradient_reduction.empty()) json["gradient_reduction"] = declared.gradient_reduction;
  if (!declared.groups.empty()) json["groups"] = declared.groups;
  if (!declared.replicas.empty()) json["replicas"] = declared.replicas;
  if (!declared.streams.empty()) json["streams"] = declared.streams;
  if (declared.average_decay > 0) json["average_decay"] = declared.average_decay;
  return json;
}

}  // namespace lockstep
