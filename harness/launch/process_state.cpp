#include "harness/launch/process_state.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "harness/base/clock.h"

namespace lockstep {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The program's file in one of PATH's folders; empty: in none.
std::string found_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = folder + "/" + name;
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

/// What the command prints on both streams, up to 64 KiB; it is killed at the deadline.
std::string output_of(const std::vector<std::string>& words, double deadline_s) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::execv(arguments.front(), arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  const double until_s = monotonic_s() + deadline_s;
  constexpr std::size_t kMost_bytes = 64 * 1024;
  while (pid > 0 && text.size() < kMost_bytes) {
    pollfd wait{ends[0], POLLIN, 0};
    const double left_s = until_s - monotonic_s();
    if (left_s <= 0 || ::poll(&wait, 1, static_cast<int>(left_s * 1000) + 1) <= 0) break;
    std::array<char, 4096> block{};
    const ssize_t n = ::read(ends[0], block.data(), block.size());
    if (n <= 0) break;
    text.append(block.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  if (pid > 0) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  return text;
}

}  // namespace

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

std::string stacks_of(int pid, double deadline_s) {
  const std::string number = std::to_string(pid);
  if (const std::string tool = found_program("eu-stack"); !tool.empty()) return output_of({tool, "-p", number}, deadline_s);
  if (const std::string tool = found_program("py-spy"); !tool.empty())
    return output_of({tool, "dump", "--native", "--pid", number}, deadline_s);
  if (const std::string tool = found_program("gdb"); !tool.empty())
    return output_of({tool, "-p", number, "-batch", "-ex", "thread apply all bt"}, deadline_s);
  return "no stack: neither eu-stack (package elfutils) nor py-spy nor gdb is installed\n";
}

}  // namespace lockstep
