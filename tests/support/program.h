#pragma once
// Starts a program as a user would and looks at what it leaves.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

namespace lockstep {

struct ProgramEnd {
  int code = -1;  ///< exit status; -1: ended by a signal
  int signal = 0;
  std::string out, err;
};

/// What a shell's command prints, and its wait status.
inline std::pair<std::string, int> output_of(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  return {text, ::pclose(pipe)};
}

/// Exit code 2, nothing on standard output, and on standard error what was to be said.
inline void expect_usage_error(const ProgramEnd& end, const testing::Matcher<std::string>& says) {
  EXPECT_EQ(end.code, 2) << end.err;
  EXPECT_THAT(end.err, says);
  EXPECT_EQ(end.out, "");
}

/// A program that runs in a folder of its own choice; its standard output goes to a file, its standard error
/// to a pipe.
class Program {
 public:
  Program(const std::vector<std::string>& words, const std::string& folder,
          const std::vector<std::pair<std::string, std::string>>& environment) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    err_ = ends[0];
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      if (::chdir(folder.c_str()) != 0) ::_exit(126);
      ::dup2(ends[1], STDERR_FILENO);
      ::dup2(::open((output_ / "out").c_str(), O_WRONLY | O_CREAT, 0644), STDOUT_FILENO);
      std::vector<char*> arguments;
      for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(err_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Reads its standard error until `text` has been said. False if it ends before.
  bool wait_for(const std::string& text) {
    while (end_.err.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  void send(int signal) { ::kill(pid_, signal); }
  pid_t process() const { return pid_; }
  ProgramEnd end() {
    while (read_some()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFEXITED(status))
      end_.code = WEXITSTATUS(status);
    else
      end_.signal = WTERMSIG(status);
    end_.out = read_text(output_ / "out");
    return end_;
  }

 private:
  bool read_some() {
    char block[4096];
    const ssize_t n = ::read(err_, block, sizeof block);
    if (n > 0) end_.err.append(block, static_cast<std::size_t>(n));
    return n > 0;
  }

  const TempFolder output_;
  pid_t pid_ = -1;
  int err_ = -1;
  ProgramEnd end_;
};

}  // namespace lockstep
