#include "harness/program/proc.h"

#include <fmt/format.h>

#include <cstdlib>

#include "harness/base/read_file.h"

namespace lockstep::program {

pid_t group_of(pid_t thread) {
  const std::string status = read_file(fmt::format("/proc/{}/status", thread)).text;
  const std::size_t at = status.find("Tgid:");
  return at == std::string::npos ? thread : static_cast<pid_t>(std::strtol(status.c_str() + at + 5, nullptr, 10));
}

std::string name_of_process(pid_t pid) {
  std::string name = read_file(fmt::format("/proc/{}/comm", pid)).text;
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

bool is_computing(pid_t group, pid_t thread) {
  const std::string stat = read_file(fmt::format("/proc/{}/task/{}/stat", group, thread)).text;
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  return state == 'R' || state == 'D' || state == 't';
}

}  // namespace lockstep::program
