#pragma once
// What an agent says of itself when it has connected.

#include <string>

#include "harness/run/host.h"

namespace lockstep {

struct AgentHello : HostIdentity {
  std::string key;      ///< that only agents of this start know
  std::string node;     ///< Slurm's name of the node, else the host's
  std::string build, isa;
  int pid = 0;
  int slots = 1;        ///< processors that the job has there
};

/// One line, ended by a newline, and back. The latter throws ConfigError.
std::string to_line(const AgentHello& hello);
AgentHello hello_from_line(const std::string& line);

/// The key in a file of AgentLauncher's; empty: there is none, or it cannot be read.
std::string key_in_file(const std::string& path);

/// Of this process, by its environment.
AgentHello introduce_agent(const std::string& key);

}  // namespace lockstep
