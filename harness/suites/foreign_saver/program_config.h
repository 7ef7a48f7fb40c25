#pragma once
// The section `program` of a config.

#include <span>
#include <string>
#include <vector>

#include "harness/suites/engine/kinds.h"
#include "harness/verdict/config/field.h"

namespace lockstep::program {

struct ProgramConfig {
  std::string folder;   ///< of the config: {config}
  std::string subject;  ///< empty: the save command
  std::string server;
  std::string setup, save, resume, check;
  std::vector<std::string> failures;  ///< names of failure_kinds(); empty: all
  int64_t points = 0;
  int64_t power_loss = 100;
  int64_t writers = 0;
  double deadline_s = 60, grace_s = 2, patience_s = 0.3;
};

/// Reports what is missing, and placeholders that a command lacks or that are none.
ProgramConfig read_program_config(const SuiteSource& source, Problems& problems);

nlohmann::ordered_json program_schema();

/// What stands for the placeholders of a command.
struct Filling {
  std::string out, resume, config;
};
/// The command with {out}, {resume} and {config} replaced by paths, quoted for a shell; as they are for a server's line.
std::string filled_in(const std::string& command, const Filling& filling, bool for_shell);

}  // namespace lockstep::program
