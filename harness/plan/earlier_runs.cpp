#include "harness/plan/earlier_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "harness/plan/errors.h"
#include "harness/plan/json_text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 8;
constexpr std::size_t kMostCandidates = 8;
constexpr std::size_t kMostKeys = 3;

std::optional<RunConfig> config_in(const fs::path& run_json) {
  const nlohmann::json json = read_json(run_json.string());
  const auto at = json.is_object() ? json.find("config") : json.end();
  if (!json.is_object() || at == json.end()) return std::nullopt;
  try {
    return run_config_from_json(at->dump(), run_json.string());
  } catch (const ConfigError&) {
    return std::nullopt;  // of a version that had other keys
  }
}

/// "steps was 100, is 101", one a key.
std::vector<std::string> differing_keys(const RunConfig& was, const RunConfig& is) {
  const auto before = config_fields(was), now = config_fields(is);
  std::vector<std::string> keys, following;
  for (std::size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    if (before[i] == now[i]) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "''" : text; };
    std::string words =
        fmt::format("{} was {}, is {}", now[i].first, shown(before[i].second), shown(now[i].second));
    // These follow from other keys: the rest says more.
    const std::string& key = now[i].first;
    const bool follows = key == "snapshot_steps" || key.starts_with("forced.");
    (follows ? following : keys).push_back(std::move(words));
  }
  if (keys.empty()) keys = std::move(following);
  return keys;
}

bool is_hash(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace

bool is_evidence(const std::string& file_name) {
  return file_name.starts_with("rank-") &&
         (file_name.ends_with(".trace") || file_name.ends_with(".result.json"));
}

std::string evidence_json(const std::string& run_folder) {
  nlohmann::json files = nlohmann::json::object();
  std::error_code error;
  for (fs::directory_iterator at(run_folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!is_evidence(name)) continue;
    const std::uintmax_t size = at->file_size(error);
    if (!error) files[name] = size;
  }
  return files.dump();
}

std::string evidence_problem(const std::string& run_folder, const std::string& files) {
  const nlohmann::json expected = parse_json(files);
  if (!expected.is_object()) return "its done file is malformed";
  for (const auto& [name, size] : expected.items()) {
    std::error_code error;
    const std::uintmax_t is = fs::file_size(fs::path(run_folder) / name, error);
    if (error) return fmt::format("its {} is gone", name);
    if (!size.is_number_unsigned() || size.get<std::uintmax_t>() != is) {
      return fmt::format("its {} has {} bytes and had {}", name, is, size.dump());
    }
  }
  return "";
}

std::string changed_config(const PlannedRun& run, const std::string& runs_folder,
                           const std::set<std::string>& present) {
  if (run.id.size() <= kHashDigits) return "";
  const std::string name = run.id.substr(0, run.id.size() - kHashDigits);
  std::vector<std::string> fewest;
  std::size_t candidates = 0;
  for (auto at = present.lower_bound(name); at != present.end() && at->starts_with(name); ++at) {
    if (at->size() != run.id.size() || !is_hash(std::string_view(*at).substr(name.size()))) continue;
    if (++candidates > kMostCandidates) break;
    const std::optional<RunConfig> config = config_in(fs::path(runs_folder) / *at / "run.json");
    if (!config) continue;
    std::vector<std::string> keys = differing_keys(*config, run.config);
    if (!keys.empty() && (fewest.empty() || keys.size() < fewest.size())) fewest = std::move(keys);
  }
  if (fewest.empty()) return "";
  const std::size_t more = fewest.size() > kMostKeys ? fewest.size() - kMostKeys : 0;
  fewest.resize(std::min(fewest.size(), kMostKeys));
  return fmt::format("ran here with another config: {}{}", fmt::join(fewest, "; "),
                     more > 0 ? fmt::format("; {} more keys", more) : "");
}

}  // namespace lockstep
