#pragma once
// Starts a shell command that is traced from its first instruction.

#include <sys/types.h>

#include <string>

namespace lockstep::program {

struct Started {
  pid_t pid = -1;
  int input = -1;   ///< the end of the pipe to its standard input; -1: that is /dev/null
  int output = -1;  ///< the end of the pipe from its standard output; -1: that goes to the log
};

/// Forks, installs the filter and executes `sh -c command` in a session of its own, seized by the calling thread. Throws
/// MachineError.
Started start_traced(const std::string& command, const std::string& log_path, bool with_pipes);

}  // namespace lockstep::program
