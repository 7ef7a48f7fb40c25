#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/options.h"
#include "harness/judge/causes/rules.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/run/libraries.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<ListedEntry> entries_of(std::span<const CatalogueEntry> catalogue) {
  std::vector<ListedEntry> entries;
  for (const CatalogueEntry& entry : catalogue)
    entries.push_back({std::string(entry.name), std::string(entry.help)});
  return entries;
}

std::vector<ListedEntry> listed_mutants() {
  std::vector<ListedEntry> listed = entries_of(catalogue_mutants());
  for (ListedEntry& entry : listed) {
    const MutantEntry* mutant = find_mutant(entry.name);
    if (mutant == nullptr) continue;
    entry.trainer = mutant->trainer;
    if (!mutant->beyond_exact.empty()) {
      entry.help += fmt::format(" (not with arithmetic: exact: {})", mutant->beyond_exact);
    }
  }
  return listed;
}

/// By phase and evidence, with what proves each.
std::vector<ListedEntry> listed_causes() {
  std::vector<ListedEntry> listed;
  for (const CausePage& page : cause_pages()) {
    const std::string proof = proved_by(page.code);
    std::string help = fmt::format("{}; proved by {}: {}", shown_by(page.code), proof, page.recognised);
    listed.push_back({std::string(page.code), std::move(help)});
    if (!page.reports.empty()) listed.back().help += fmt::format(" ({})", page.reports);
  }
  return listed;
}

std::string question_of(const fs::path& file) {
  const std::string text = read_file(file.string(), kMostConfigBytes).text;
  const std::string line = text.substr(0, text.find_first_of("\r\n"));
  if (line.empty() || line.front() != '#') return "";
  const std::size_t begin = line.find_first_not_of("# \t");
  return begin == std::string::npos ? "" : line.substr(begin);
}

ListedKind kind_named(const std::string& name) {
  if (name == "scenarios") return {name, entries_of(catalogue_scenarios())};
  if (name == "losses") return {name, entries_of(catalogue_losses())};
  if (name == "mutants") return {name, listed_mutants()};
  if (name == "metrics") return {name, entries_of(catalogue_metrics())};
  if (name == "causes") return {name, listed_causes()};
  return {name, configs_in(configs_folder())};
}

}  // namespace

std::vector<ListedEntry> configs_in(const std::string& folder) {
  std::vector<ListedEntry> entries;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".yaml") continue;
    entries.push_back({entry.path().string(), question_of(entry.path())});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

std::string configs_folder() {
  std::error_code error;
  if (fs::is_directory("configs", error)) return "configs";
  if (const std::string share = share_folder(); !share.empty()) return share + "/configs";
  for (fs::path place = program_path(); place.has_relative_path(); place = place.parent_path()) {
    if (const fs::path candidate = place / "configs"; fs::is_directory(candidate, error))
      return candidate.string();
  }
  return "";
}

std::string config_path(const std::string& name) {
  std::error_code error;
  if (name.empty() || fs::is_regular_file(name, error) || fs::path(name).is_absolute()) return name;
  constexpr std::string_view kFolder = "configs/";
  const std::string folder = configs_folder();
  const std::string stem = name.starts_with(kFolder) ? name.substr(kFolder.size()) : name;
  if (folder.empty() || stem.find('/') != std::string::npos) return name;
  for (const std::string& file : {stem, stem + ".yaml"}) {
    const fs::path candidate = fs::path(folder) / file;
    if (fs::is_regular_file(candidate, error)) return candidate.string();
  }
  if (stem.find('.') != std::string::npos || fs::exists(name, error)) return name;
  std::vector<std::string> stems;
  for (const ListedEntry& entry : configs_in(folder)) stems.push_back(fs::path(entry.name).stem().string());
  throw unknown_word("", fmt::format("there is no file and no config '{}'; lockstep list configs lists them", name), stem,
                     {stems.begin(), stems.end()});
}

std::string list_text(const std::vector<ListedKind>& kinds) {
  std::string text;
  for (const ListedKind& kind : kinds) {
    std::size_t width = 0;
    for (const ListedEntry& entry : kind.entries) width = std::max(width, entry.name.size());
    if (kinds.size() > 1) text += (text.empty() ? "" : "\n") + kind.kind + "\n";
    const char* indent = kinds.size() > 1 ? "  " : "";
    for (const ListedEntry& entry : kind.entries) {
      std::string line = fmt::format("{}{:<{}}  {}", indent, entry.name, width, entry.help);
      if (!entry.trainer.empty()) line += fmt::format(" (trainer {})", entry.trainer);
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    if (kind.entries.empty()) text += fmt::format("{}(none)\n", indent);
  }
  return text;
}

std::string list_json(const std::vector<ListedKind>& kinds) {
  nlohmann::json json = nlohmann::json::object();
  for (const ListedKind& kind : kinds) {
    nlohmann::json entries = nlohmann::json::array();
    for (const ListedEntry& entry : kind.entries) {
      nlohmann::json one{{"name", entry.name}, {"help", entry.help}};
      if (!entry.trainer.empty()) one["trainer"] = entry.trainer;
      entries.push_back(std::move(one));
    }
    json[kind.kind] = std::move(entries);
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int list_command(const ListOptions& options, const Console& console) {
  const std::vector<std::string_view> known = {"scenarios", "losses", "mutants", "metrics", "configs", "causes"};
  std::vector<ListedKind> kinds;
  if (options.what.empty()) {
    for (const std::string_view name : known)
      if (name != "causes") kinds.push_back(kind_named(std::string(name)));
  } else {
    require_known(options.what, known, "list", "kind");
    kinds.push_back(kind_named(options.what));
  }
  console.out << (options.json ? clean_json(list_json(kinds)) : clean_text(list_text(kinds)));
  return kExitAsExpected;
}

}  // namespace lockstep
