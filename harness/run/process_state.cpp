#include "harness/run/process_state.h"

#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

/// Of the process in that folder of /proc; 0: it may not be asked.
uint64_t space_of(const std::string& folder) {
  struct stat space {};
  std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  std::erase(boot, '-');
  if (boot.size() < 16 || ::stat((folder + "/ns/pid").c_str(), &space) != 0) return 0;
  return std::strtoull(boot.substr(0, 16).c_str(), nullptr, 16) ^ static_cast<uint64_t>(space.st_ino);
}

/// Its number in its own namespace, the last of those that it has.
int innermost_pid(const std::string& folder) {
  std::ifstream file(folder + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("NSpid:")) return std::atoi(line.substr(line.find_last_of("\t ") + 1).c_str());
  return 0;
}

}  // namespace

uint64_t process_space() {
  static const uint64_t space = space_of("/proc/self");
  return space;
}

ProcessId process_here(int pid) { return {pid, process_space(), process_state(pid).started}; }

ProcessId seen_from_here(const ProcessId& said) {
  if (said.pid <= 0 || said.space == 0 || said.started == 0) return {-1};
  if (said.space == process_space()) return said;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    if (innermost_pid(at->path()) != said.pid || space_of(at->path()) != said.space) continue;
    const ProcessId here = process_here(pid);
    if (here.started == said.started) return here;
  }
  return {-1};
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_gone(const ProcessId& process) {
  if (process.pid <= 0) return false;
  const ProcessState now = process_state(process.pid);
  return now.gone() || (process.started != 0 && now.started != process.started);
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
  constexpr int kBetween = 18;  // fields 4 to 21
  std::string other;
  for (int i = 0; i < kBetween; ++i) fields >> other;
  fields >> found.started;
  found.waits_in = first_line(folder + "/wchan");
  if (found.waits_in == "0") found.waits_in.clear();
  return found;
}

}  // namespace lockstep
