#pragma once
// The trainer command: a program of the user's, which the probe records.

#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/config/trainer_spec.h"
#include "scenarios/command/config.h"

namespace lockstep {

const TrainerSpec& command_spec();

/// What decides what a command computes, besides its config: the sources beside the scripts that it names, and the files that it lists.
struct CommandSources {
  std::vector<std::string> files;  ///< paths in order
  std::vector<std::string> folders;  ///< where sources were looked for
  uint64_t bytes = 0;
  bool all = true;   ///< false: there are more than are looked at
  std::string hash;  ///< of names below their folders, and contents
};
/// Throws ConfigError if the folder or a listed file is not there.
CommandSources sources_of(const CommandConfig& command);

}  // namespace lockstep
