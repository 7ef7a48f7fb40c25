#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"

// Settings of the trainer command, beside those that every trainer has.

namespace lockstep {

struct CommandConfig {
  std::string command;       ///< for /bin/sh -c, with placeholders
  std::string folder;        ///< where it runs: an absolute path once a config is read
  std::string files;         ///< further files of its identity: paths and patterns with blanks between them, from the folder on
  bool led = false;          ///< runs of cells are led by their reference's of the same seed
  std::string metrics_from;  ///< a log with metrics: .csv, .jsonl, or TensorBoard's; empty: those that the probe recorded
  std::string led_by;        ///< id of the run that leads this one; the planner's
  std::string recorded;      ///< what the probe is asked for: "STEPS=8 PRECISION=float64"; the planner's
  std::map<std::string, std::string> variables;  ///< env.NAME, by the whole key
  std::map<std::string, std::string> arguments;  ///< args.NAME, by the whole key
};

const CommandConfig& command_config(const RunConfig& config);
CommandConfig& command_config(RunConfig& config);

/// Hands each {name} of a command to `found`; a shell's ${name} and braces around anything else are none.
void for_each_placeholder(const std::string& command, const std::function<void(const std::string& name)>& found);
bool names_placeholder(const std::string& command, std::string_view placeholder);

// The trainer command: a program of the user's, which the probe records.

const TrainerSpec& command_spec();

/// What decides what a command computes, besides its config: the sources beside the scripts that it names, and the files that it lists.
struct CommandSources {
  std::vector<std::string> files;  ///< paths in order
  std::vector<std::string> folders;  ///< where sources were looked for
  uint64_t bytes = 0;
  bool all = true;   ///< false: there are more than are looked at
  std::string hash;  ///< of names below their folders, and contents
};

}  // namespace lockstep
