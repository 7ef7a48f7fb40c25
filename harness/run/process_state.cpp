#include "harness/run/process_state.h"

#include <fstream>
#include <sstream>
#include <string_view>

namespace lockstep {
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_gone(int pid) {
  const char state = process_state(pid).state;
  return state == '?' || state == 'Z' || state == 'X';
}

std::string tracer_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  constexpr std::string_view kKey = "TracerPid:\t";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    const std::string tracer = line.substr(kKey.size());
    return tracer == "0" ? "" : "process " + tracer + " (" + first_line("/proc/" + tracer + "/comm") + ")";
  }
  return "";
}

ProcessState process_state(int pid) {
  ProcessState found;
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::string line = first_line(folder + "/stat");
  // The name may hold blanks and brackets; what is wanted stands behind its last bracket.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return found;
  std::istringstream fields(line.substr(end + 1));
  fields >> found.state;
  found.waits_in = first_line(folder + "/wchan");
  if (found.waits_in == "0") found.waits_in.clear();
  return found;
}

}  // namespace lockstep
