#pragma once
// Settings of the trainer command, beside those that every trainer has.

#include <map>
#include <span>
#include <string>

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {

struct CommandConfig {
  std::string command;       ///< for /bin/sh -c, with placeholders
  std::string folder;        ///< where it runs: an absolute path once a config is read
  std::string files;         ///< further files of its identity: paths and patterns with blanks between them, from the folder on
  bool replay = false;       ///< runs of cells replay steps from their reference's states
  std::string metrics_from;  ///< a log with metrics: .csv, .jsonl, or TensorBoard's; empty: those that the probe recorded
  std::string against;       ///< id of the reference's run; the planner's
  std::map<std::string, std::string> variables;  ///< env.NAME, by the whole key
  std::map<std::string, std::string> arguments;  ///< args.NAME, by the whole key
};

std::span<const RunField> command_fields();
std::span<const OpenGroup> command_groups();

const CommandConfig& command_config(const RunConfig& config);
CommandConfig& command_config(RunConfig& config);

}  // namespace lockstep
