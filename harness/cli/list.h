#pragma once
// What `list` shows.

#include <string>
#include <vector>

namespace lockstep {

struct ListedEntry {
  std::string name, help;
  std::string trainer = {};  ///< of a mutant: the only one that it fits
};

struct ListedKind {
  std::string kind;  ///< scenarios, losses, mutants, metrics, configs
  std::vector<ListedEntry> entries;
};

std::string list_text(const std::vector<ListedKind>& kinds);
std::string list_json(const std::vector<ListedKind>& kinds);

/// The YAML files of a folder by name, each with the question that its first line asks.
std::vector<ListedEntry> configs_in(const std::string& folder);

/// `configs` in the working folder, else that of the running program: in its prefix's share/lockstep if it is
/// installed, else the nearest one above it; empty if there is none.
std::string configs_folder();

/// The file that a command line means by `name`: the path itself if it is there; else `name`, with or without
/// "configs/" before it and ".yaml" behind it, in configs_folder(). As it was given if nothing is found.
std::string config_path(const std::string& name);

}  // namespace lockstep
