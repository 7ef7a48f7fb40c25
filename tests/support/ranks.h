#pragma once
// The ranks of a test: threads of its process, or processes that it forks.

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::support {

/// Runs `rank` once for each, at the same time; what each threw.
inline std::vector<std::string> on_threads(int ranks, const std::function<void(int)>& rank) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int at = 0; at < ranks; ++at) {
    threads.emplace_back([&, at] {
      try {
        rank(at);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(at)] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

/// The exit code of a process, or the signal that ended it with a minus.
inline int code_of(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline std::vector<int> codes_of(const std::vector<pid_t>& processes) {
  std::vector<int> codes;
  for (const pid_t process : processes) codes.push_back(code_of(process));
  return codes;
}

/// Runs `rank` in a process for each, which exits with what it returns. One that hangs is ended, not the session.
inline std::vector<pid_t> forked(int ranks, const std::function<int(int)>& rank) {
  std::vector<pid_t> processes;
  for (int at = 0; at < ranks; ++at) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    ::alarm(120);
    ::_exit(rank(at));
  }
  return processes;
}

}  // namespace lockstep::support
