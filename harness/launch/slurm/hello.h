#pragma once
// What an agent says of itself when it has connected.

#include <string>

namespace lockstep {

struct AgentHello {
  std::string key;      ///< that only agents of this start know
  std::string node;     ///< Slurm's name of the node, else the host's
  std::string host, address;
  std::string build, isa;
  int pid = 0;
  int slots = 1;        ///< processors that the job has there
};

/// One line, ended by a newline, and back. A line that is none gives a hello without a key.
std::string to_line(const AgentHello& hello);
AgentHello hello_from_line(const std::string& line);

/// For the connection of lockstep and an agent: sent at once, and closed some ten seconds after the other host is gone without a word.
void set_side_channel(int connected);

/// Of this process, by its environment.
AgentHello introduce_agent(const std::string& key);

}  // namespace lockstep
