#pragma once
// What `list` shows.

#include <string>
#include <vector>

namespace lockstep {

struct ListedEntry {
  std::string name, help;
};

struct ListedKind {
  std::string kind;  ///< scenarios, losses, mutants, configs
  std::vector<ListedEntry> entries;
};

std::string list_text(const std::vector<ListedKind>& kinds);
std::string list_json(const std::vector<ListedKind>& kinds);

/// The YAML files of a folder by name, each with the question that its first line asks.
std::vector<ListedEntry> configs_in(const std::string& folder);

/// `configs` in the working folder, else the nearest one above the running program; empty if there is none.
std::string configs_folder();

}  // namespace lockstep
