#include "harness/plan/config/canonical.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string_view>
#include <unordered_set>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

// What stands before each value, in the order of the keys: commas, braces of groups, names.
struct JsonSlot {
  std::string before;
  const RunField* field;
};

/// Keys that came later than runs whose hashes must stay: they stand in a text only where one of them is set.
constexpr std::array<std::string_view, 8> kLaterKeys{
    "backend",          "checkpoint.required", "checkpoint.",   "watch.",
    "forced.chosen_by", "update",              "average_decay", "convention."};
using LaterKeys = std::array<bool, kLaterKeys.size()>;
LaterKeys sets_later_keys(const RunConfig& config) {
  return {config.transport != Transport::gloo, config.checkpoint.required, !(config.checkpoint == CheckpointConfig{}),
          !(config.watch == WatchConfig{}),
          !config.forced.chosen_by.empty(),
          config.update != UpdatePartition::whole,
          config.average_decay != 0,
          spec_of(config).sets_convention != nullptr && spec_of(config).sets_convention(config)};
}
bool stands(const RunField& field, const LaterKeys& later) {
  for (std::size_t i = 0; i < kLaterKeys.size(); ++i) {
    if (field.spec.key.starts_with(kLaterKeys[i])) return later[i];
  }
  return true;
}

/// `config`: whose keys of open groups stand there; null: none.
std::vector<JsonSlot> make_json_slots(const TrainerSpec& trainer, const LaterKeys& later, const RunConfig* config = nullptr) {
  const auto fields = fields_of(trainer);
  std::vector<const RunField*> sorted(fields.begin(), fields.end());
  // Of keys that users name, only those that are set: which others have been looked for is no part of a config.
  std::erase_if(sorted, [&](const RunField* field) {
    return !stands(*field, later) || (field->is_open() && (config == nullptr || text_of(field->of(*config)).empty()));
  });
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->spec.key < b->spec.key; });
  std::vector<JsonSlot> slots;
  std::string_view group;
  for (const RunField* field : sorted) {
    const std::string_view key = field->spec.key;
    const std::size_t dot = key.find('.');
    const std::string_view its_group =
        dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
    std::string before = slots.empty() ? "{" : ",";
    if (its_group != group) {
      before = group.empty() ? before : "}" + before;
      if (!its_group.empty()) before += fmt::format("\"{}\":{{", its_group);
      group = its_group;
    }
    before += fmt::format("\"{}\":", its_group.empty() ? key : key.substr(dot + 1));
    slots.push_back({std::move(before), field});
  }
  // The last key in the alphabet stands at the top level, so no group is left open.
  LOCKSTEP_CHECK(group.empty(), "the last key of RunConfig must not stand in a group");
  return slots;
}

// JSON values as the tree that config files are read into, so that types and ranges are checked by one
// reader.
YamlNode tree_of(const nlohmann::json& json) {
  YamlNode node;
  if (json.is_object()) {
    node.kind = YamlNode::Kind::map;
    for (const auto& [key, value] : json.items()) {
      YamlNode name;
      name.kind = YamlNode::Kind::scalar;
      name.text = key;
      node.keys.push_back(std::move(name));
      node.items.push_back(tree_of(value));
    }
  } else if (json.is_array()) {
    node.kind = YamlNode::Kind::sequence;
    for (const nlohmann::json& item : json) node.items.push_back(tree_of(item));
  } else if (!json.is_null()) {
    node.kind = YamlNode::Kind::scalar;
    node.quoted = json.is_string();
    node.text = json.is_string() ? json.get<std::string>() : json.dump();
  }
  return node;
}

void read_object(const YamlNode& map, const std::string& prefix, RunConfig& config, Problems& problems) {
  const TrainerSpec& trainer = spec_of(config);
  for (std::size_t i = 0; i < map.keys.size(); ++i) {
    const std::string key = prefix + map.keys[i].text;
    if (map.items[i].is_map() && prefix.empty()) {
      read_object(map.items[i], key + ".", config, problems);
      continue;
    }
    const RunField* field = find_field(trainer, key);
    if (field == nullptr) {
      std::vector<std::string_view> keys;
      for (const RunField* known : fields_of(trainer)) keys.push_back(known->spec.key);
      problems.add({}, fmt::format("unknown key {}", in_quotes(key)), nearest(key, keys));
      continue;
    }
    read_field(field->spec, field->of(config), map.items[i], problems);
  }
}

/// The slots of a trainer's fields.
const std::vector<JsonSlot>& json_slots(const TrainerSpec& trainer, const LaterKeys& later_keys) {
  using Slots = std::map<std::pair<const TrainerSpec*, LaterKeys>, std::vector<JsonSlot>>;
  static const Slots slots = [] {
    Slots all;
    for (const TrainerSpec* spec : trainer_specs()) {
      for (unsigned set = 0; set < 1U << kLaterKeys.size(); ++set) {
        LaterKeys later{};
        for (std::size_t i = 0; i < later.size(); ++i) later[i] = (set >> i & 1U) != 0;
        all.emplace(std::pair(spec, later), make_json_slots(*spec, later));
      }
    }
    return all;
  }();
  return slots.at({&trainer, later_keys});
}

/// The trainer that a run's JSON names, or the default one.
const TrainerSpec& trainer_of(const nlohmann::json& json, Problems& problems) {
  const auto name = json.find("trainer");
  if (name == json.end() || !name->is_string()) return *trainer_specs().front();
  if (const TrainerSpec* spec = find_trainer_spec(name->get<std::string>())) return *spec;
  problems.add({}, fmt::format("unknown trainer {}", in_quotes(name->get<std::string>())));
  return *trainer_specs().front();
}

}  // namespace

std::string canonical_json(const RunConfig& config) {
  std::string out;
  out.reserve(1600);
  const TrainerSpec& trainer = spec_of(config);
  const LaterKeys later = sets_later_keys(config);
  const auto write = [&](const std::vector<JsonSlot>& slots) {
    for (const JsonSlot& slot : slots) {
      out += slot.before;
      append_json(out, slot.field->of(config));
    }
  };
  trainer.open_groups.empty() ? write(json_slots(trainer, later)) : write(make_json_slots(trainer, later, &config));
  out += '}';
  return out;
}

std::string config_hash(const RunConfig& config) {
  const auto leave_out_places = spec_of(config).leave_out_places;
  if (leave_out_places == nullptr) return hash_in_hex(canonical_json(config));
  RunConfig placeless = config;
  leave_out_places(placeless);
  return hash_in_hex(canonical_json(placeless));
}

std::string training_hash(const RunConfig& config) {
  const CoreConfig plain;
  RunConfig same = config;
  same.layout = {1, config.layout.global_batch()};
  same.rows = plain.rows;
  same.backend = plain.backend;
  same.transport = plain.transport;
  same.stop_after = plain.stop_after;
  same.resume_from = plain.resume_from;
  same.resume_step = plain.resume_step;
  same.bucket_cap_bytes = plain.bucket_cap_bytes;
  same.gradient_as_bucket_view = plain.gradient_as_bucket_view;
  same.find_unused_parameters = plain.find_unused_parameters;
  same.update = plain.update;
  same.data.prefetch = plain.data.prefetch;
  same.process_start = plain.process_start;
  same.trace = plain.trace;
  same.snapshot_steps = plain.snapshot_steps;
  same.checkpoint = plain.checkpoint;
  same.watch = plain.watch;
  same.watch.nan_guard = config.watch.nan_guard;  // it may leave updates out
  same.timeout_s = plain.timeout_s;
  same.control_guard = plain.control_guard;
  return config_hash(same);
}

RunConfig run_config_from_json(const std::string& text, const std::string& file_name) {
  JsonProblem problem;
  const nlohmann::json json = parse_json(text, &problem);
  if (!problem.message.empty()) {
    throw ConfigError({ConfigProblem{file_name, problem.line, problem.column, problem.message, ""}});
  }
  Problems problems(file_name);
  RunConfig config(trainer_of(json, problems));
  if (json.is_object()) {
    read_object(tree_of(json), "", config, problems);
  } else {
    problems.add({}, "a run's config must be a JSON object");
  }
  problems.throw_if_any();
  return config;
}

std::vector<std::pair<std::string, std::string>> config_fields(const RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const RunField* field : fields_of(spec_of(config))) {
    if (!stands(*field, sets_later_keys(config)) || (field->is_open() && text_of(field->of(config)).empty())) continue;
    out.emplace_back(field->spec.key, text_of(field->of(config)));
  }
  return out;
}

bool same_config(const RunConfig& a, const RunConfig& b) {
  return a.trainer == b.trainer && std::ranges::all_of(fields_of(spec_of(a)), [&](const RunField* field) {
    return equal(field->of(a), field->of(b));
  });
}

namespace {

/// How ranks share a step's rows, where a run stops or begins, from whose state gradients are computed, and planted mistakes:
/// what a comparison is across, or what stands for another program.
bool is_across(std::string_view key) {
  static constexpr auto kKeys = std::to_array<std::string_view>({"rows", "stop_after", "resume_from", "resume_step", "oracle_world"});
  static constexpr auto kGroups = std::to_array<std::string_view>({"forced.", "mutant.", "second_mutant."});
  return std::ranges::find(kKeys, key) != kKeys.end() ||
         std::ranges::any_of(kGroups, [key](std::string_view group) { return key.starts_with(group); });
}

}  // namespace

std::vector<ConfigDifference> config_differences(const RunConfig& reference, const RunConfig& cell,
                                                 std::span<const std::string> declared) {
  if (reference.oracle_world > 0 || cell.oracle_world > 0) return {};
  if (reference.trainer != cell.trainer) return {{"trainer", reference.trainer, cell.trainer}};
  std::vector<ConfigDifference> differences;
  for (const RunField* field : fields_of(spec_of(reference))) {
    if (equal(field->of(reference), field->of(cell))) continue;
    const std::string key(field->spec.key);
    const bool trains = key == "seed" || (decides_learning(key) && !is_across(key));
    const bool same_rows = key == "layout" && reference.layout.global_batch() == cell.layout.global_batch();
    if (!trains || same_rows) continue;
    differences.push_back({key, text_of(field->of(reference)), text_of(field->of(cell)),
                           std::ranges::find(declared, key) != declared.end()});
  }
  return differences;
}

std::vector<ConfigDifference> config_differences(const ConfigPair& configs) {
  if (!configs.both_known()) return {};
  return config_differences(*configs.reference, *configs.cell, configs.declared);
}

std::string differences_text(std::span<const ConfigDifference> differences) {
  std::string text;
  for (const ConfigDifference& it : differences) {
    const auto shown = [](const std::string& value) { return value.empty() ? "none" : value; };
    text += fmt::format("{}{} {} / {}", text.empty() ? "" : ", ", it.key, shown(it.reference), shown(it.cell));
  }
  return text;
}

namespace {

/// 0.9 is no binary fraction: 10 (1 - 0.9) comes out below 1 by rounding alone.
constexpr double kRounding = 1e-9;

double scaled_beta(double beta, double ranks) { return std::clamp(1 - ranks * (1 - beta), 0.0, beta); }

}  // namespace

double learning_rate(const RunConfig& config, int64_t step) {
  double rate = config.lr * config.lr_scale;
  if (config.lr_rule == LrRule::linear) {
    rate *= config.layout.world_size;
  } else if (config.lr_rule == LrRule::sqrt || config.lr_rule == LrRule::adam_sqrt) {
    rate *= std::sqrt(static_cast<double>(config.layout.world_size));
  }
  if (config.schedule != Schedule::constant && step < config.warmup_steps) {
    return rate * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  if (config.schedule == Schedule::cosine) {
    const int64_t span = std::max<int64_t>(1, config.steps - config.warmup_steps);
    const double progress = static_cast<double>(step - config.warmup_steps) / static_cast<double>(span);
    return rate * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  return rate;
}

AdamNumbers adam_numbers(const RunConfig& config) {
  const double ranks = config.layout.world_size;
  if (config.lr_rule != LrRule::adam_sqrt || ranks == 1) return {config.beta1, config.beta2, config.eps};
  return {scaled_beta(config.beta1, ranks), scaled_beta(config.beta2, ranks), config.eps / std::sqrt(ranks)};
}

bool fits_adam_sqrt(const RunConfig& config) {
  if (config.lr_rule != LrRule::adam_sqrt) return true;
  const double shorter = 1 - std::min(config.beta1, config.beta2);
  return config.layout.world_size * shorter < 1 - kRounding;
}

bool decides_learning(std::string_view key) {
  static constexpr auto kHowItRuns = std::to_array<std::string_view>(
      {"seed", "trace", "snapshot_steps", "eval_every", "timeout_s", "control_guard", "ranks", "backend", "process_start", "bucket_cap_bytes",
       "gradient_as_bucket_view", "find_unused_parameters", "update", "data.cache", "data.prefetch"});
  return std::ranges::find(kHowItRuns, key) == kHowItRuns.end() && !key.starts_with("checkpoint.") &&
         (!key.starts_with("watch.") || key == "watch.nan_guard");
}

bool decides_bits(std::string_view key) {
  static constexpr auto kNever = std::to_array<std::string_view>(
      {"seed", "stop_after", "trace", "snapshot_steps", "eval_every", "timeout_s", "process_start", "data.cache", "data.prefetch"});
  static constexpr auto kNeverBelow =
      std::to_array<std::string_view>({"checkpoint.", "watch.", "forced.", "mutant.", "second_mutant.", "resume_"});
  return std::ranges::find(kNever, key) == kNever.end() && (key == "watch.nan_guard" || std::ranges::none_of(kNeverBelow, [&](std::string_view group) {
                                                              return key.starts_with(group);
                                                            }));
}

bool promise_equal_bits(const RunConfig& a, const RunConfig& b) {
  if (a.trainer != b.trainer) return false;
  const auto rows_of = [](const RunConfig& config) {
    auto rows = config_fields(config);
    std::erase_if(rows, [](const auto& row) { return !decides_bits(row.first); });
    return rows;
  };
  // Of what GPUs carry the order of adding is not known.
  return a.transport == Transport::gloo && rows_of(a) == rows_of(b);
}

std::string learning_text(std::vector<std::pair<std::string, std::string>> rows) {
  std::erase_if(rows, [](const auto& row) { return !decides_learning(row.first); });
  std::ranges::sort(rows);
  std::string text;
  for (const auto& [key, value] : rows) text += key + "=" + value + "\n";
  return text;
}

namespace {

constexpr int64_t kMostSeeds = 10000;
constexpr int64_t kLargestSeed = 9007199254740991;  // 2^53 - 1, exact in every reader of JSON

constexpr std::string_view kForm = "seeds are written A..B, a,b,c, or one whole number";

std::string check(const std::vector<int64_t>& seeds) {
  std::unordered_set<int64_t> seen;
  for (const int64_t seed : seeds) {
    if (seed < 0 || seed > kLargestSeed) return fmt::format("seed {} is not in [0, 2^53)", seed);
    if (!seen.insert(seed).second) return fmt::format("seed {} is given twice", seed);
  }
  return "";
}

std::string parse_range(std::string_view first_text, std::string_view last_text,
                        std::vector<int64_t>& seeds) {
  int64_t first = 0, last = 0;
  if (!parse_integer(first_text, first) || !parse_integer(last_text, last)) return std::string(kForm);
  if (first < 0 || last > kLargestSeed) return "seeds must be in [0, 2^53)";
  if (last < first) return fmt::format("the seeds {}..{} end before they begin", first, last);
  if (last - first >= kMostSeeds) return fmt::format("more than {} seeds", kMostSeeds);
  for (int64_t seed = first; seed <= last; ++seed) seeds.push_back(seed);
  return "";
}

}  // namespace

std::string parse_seeds(std::string_view text, std::vector<int64_t>& seeds) {
  seeds.clear();
  const std::size_t dots = text.find("..");
  if (dots != std::string_view::npos) return parse_range(text.substr(0, dots), text.substr(dots + 2), seeds);
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    int64_t seed = 0;
    if (!parse_integer(item, seed)) return std::string(kForm);
    seeds.push_back(seed);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return check(seeds);
}

void read_seeds(const YamlNode& node, std::vector<int64_t>& seeds, Problems& problems) {
  if (node.is_scalar()) {
    if (const std::string wrong = parse_seeds(node.text, seeds); !wrong.empty()) {
      problems.add(node.place, wrong == kForm ? fmt::format("{}, not {}", wrong, in_quotes(node.text)) : wrong);
    }
    return;
  }
  if (!node.is_sequence() || node.items.empty()) {
    problems.add(node.place, fmt::format("seeds must be 0..9, a list, or a number, not {}",
                                         node.is_sequence() ? "an empty list" : name_of(node.kind)));
    return;
  }
  seeds.clear();
  for (const YamlNode& item : node.items) {
    int64_t seed = 0;
    if (!item.is_scalar() || item.quoted || !parse_integer(item.text, seed)) {
      problems.add(item.place, fmt::format("a seed must be a whole number, not {}",
                                           item.is_scalar() ? in_quotes(item.text) : name_of(item.kind)));
      return;
    }
    seeds.push_back(seed);
  }
  if (const std::string wrong = check(seeds); !wrong.empty()) problems.add(node.place, wrong);
}

uint64_t mix_key(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

int64_t stream_seed(const RunConfig& config) {
  constexpr uint64_t kOtherDraws = 0x6f7468657264;  // "otherd"
  if (config.perturb != Perturbation::random_draws) return config.seed;
  return static_cast<int64_t>(mix_key(static_cast<uint64_t>(config.seed) ^ kOtherDraws));
}

uint64_t stream_base(RankSeed mode, int64_t seed, int rank) {
  return mix_key(static_cast<uint64_t>(seed) +
                 (mode == RankSeed::plus_rank ? static_cast<uint64_t>(rank) : 0));
}

uint64_t stream_row_key(uint64_t base, uint32_t purpose, int64_t step, uint64_t who) {
  return mix_key(mix_key(mix_key(base ^ static_cast<uint64_t>(purpose)) ^ static_cast<uint64_t>(step)) ^ who);
}

uint64_t stream_fingerprint(std::span<const uint64_t> row_keys) {
  uint64_t sum = 0;
  for (const uint64_t key : row_keys) sum += mix_key(key);
  return sum;
}

}  // namespace lockstep
