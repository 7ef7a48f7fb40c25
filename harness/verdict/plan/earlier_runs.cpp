#include "harness/verdict/plan/earlier_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/hex.h"
#include "harness/base/json_text.h"
#include "harness/base/read_file.h"
#include "harness/base/sealed_json.h"
#include "harness/verdict/config/canonical.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 8;
constexpr std::size_t kBlockBytes = 64 * 1024;  ///< of a file: damage is known to lie in one of them
constexpr std::size_t kMostCandidates = 8;
constexpr std::size_t kMostKeys = 3;

struct Fingerprint {
  std::size_t bytes = 0;
  std::vector<std::string> blocks;  ///< XXH3 of each 64 KiB
};

/// Returns what keeps the file from being read to its end, or nothing.
std::string take_fingerprint(const fs::path& path, Fingerprint& print) {
  return OpenFile(path.string()).read_blocks(kBlockBytes, [&print](std::string_view block) {
    print.bytes += block.size();
    print.blocks.push_back(hash_in_hex(block));
  });
}

std::vector<std::string> evidence_in(const std::string& run_folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(run_folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (is_evidence(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<RunConfig> config_in(const fs::path& run_json) {
  std::string problem;
  const std::optional<nlohmann::json> json = read_sealed(run_json.string(), problem);
  if (!json || !json->contains("config")) return std::nullopt;
  const auto at = json->find("config");
  try {
    return run_config_from_json(at->dump(), run_json.string());
  } catch (const ConfigError&) {
    return std::nullopt;  // of a version that had other keys
  }
}

/// "steps was 100, is 101", one a key.
std::vector<std::string> differing_keys(const RunConfig& was, const RunConfig& is) {
  const auto before_all = config_fields(was), now = config_fields(is);
  const std::map<std::string, std::string> before(before_all.begin(), before_all.end());
  std::vector<std::string> keys, following;
  for (const auto& [name, value] : now) {
    const auto was_it = before.find(name);
    if (was_it == before.end() || was_it->second == value) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "''" : text; };
    std::string words =
        fmt::format("{} was {}, is {}", name, shown(was_it->second), shown(value));
    // These follow from other keys: the rest says more.
    const bool follows = name == "snapshot_steps" || name.starts_with("forced.");
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
  return file_name == "run.json" || (file_name.starts_with("rank-") &&
                                     (file_name.ends_with(".trace") || file_name.ends_with(".result.json") || file_name.ends_with(".probe.json")));
}

std::string evidence_json(const std::string& run_folder) {
  nlohmann::json files = nlohmann::json::object();
  for (const std::string& name : evidence_in(run_folder)) {
    const fs::path path = fs::path(run_folder) / name;
    Fingerprint found;
    const std::string problem = take_fingerprint(path, found);
    if (!problem.empty()) throw MachineError(fmt::format("{}: {}", path.string(), problem));
    files[name] = {{"bytes", found.bytes}, {"xxh3", found.blocks}};
  }
  return files.dump();
}

std::string evidence_problem(const std::string& run_folder, const std::string& files) {
  const nlohmann::json expected = parse_json(files);
  if (!expected.is_object()) return "its done file is malformed";
  if (!expected.contains("run.json")) return "its done file lists no checksum of run.json";
  for (const auto& [name, was] : expected.items()) {
    const auto bytes = was.find("bytes"), blocks = was.find("xxh3");
    if (!was.is_object() || bytes == was.end() || blocks == was.end() || !blocks->is_array()) {
      return fmt::format("its done file has no checksum of {}: an earlier version wrote it", name);
    }
    Fingerprint is;
    if (!take_fingerprint(fs::path(run_folder) / name, is).empty())
      return fmt::format("its {} is missing", name);
    if (*bytes != is.bytes)
      return fmt::format("its {} has {} bytes and had {}", name, is.bytes, bytes->dump());
    for (std::size_t i = 0; i < is.blocks.size(); ++i) {
      if (i < blocks->size() && (*blocks)[i] == is.blocks[i]) continue;
      return fmt::format(
          "its {} is damaged between bytes {} and {}: their XXH3 is {}, and was {} when the run finished",
          name, i * kBlockBytes, std::min((i + 1) * kBlockBytes, is.bytes), is.blocks[i],
          i < blocks->size() && (*blocks)[i].is_string() ? (*blocks)[i].get<std::string>() : "not noted");
    }
  }
  for (const std::string& name : evidence_in(run_folder)) {
    if (!expected.contains(name)) return fmt::format("its {} did not exist when it finished", name);
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
  return fmt::format("ran here with a different config: {}{}", fmt::join(fewest, "; "),
                     more > 0 ? fmt::format("; {} more keys", more) : "");
}

}  // namespace lockstep
