#include "harness/suites/foreign_saver/start.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "harness/base/errors.h"
#include "harness/suites/foreign_saver/seccomp_filter.h"

namespace lockstep::program {
namespace {

constexpr int kExecFailed = 127;

struct Ends {
  int gate = -1, input = -1, output = -1, log = -1;
};

/// In the forked child: only calls that are safe between fork and exec.
[[noreturn]] void become(const char* command, const sock_fprog& filter, const Ends& ends) {
  char opened = 0;
  while (::read(ends.gate, &opened, 1) < 0 && errno == EINTR) {
  }
  if (opened != 'g') ::_exit(kExecFailed);  // nobody traces us: without a tracer, filtered calls would fail
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) ::signal(number, SIG_DFL);
  const int input = ends.input >= 0 ? ends.input : ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(ends.output >= 0 ? ends.output : ends.log, STDOUT_FILENO);
  ::dup2(ends.log, STDERR_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(kExecFailed);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(kExecFailed);
  ::execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  ::_exit(kExecFailed);
}

void close_all(std::initializer_list<int> files) {
  for (const int file : files) {
    if (file >= 0) ::close(file);
  }
}

void make_pipe(std::array<int, 2>& ends) {
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw MachineError(std::string("cannot make a pipe: ") + std::strerror(errno));
}

}  // namespace

Started start_traced(const std::string& command, const std::string& log_path, bool with_pipes) {
  std::vector<sock_filter> lines = tracing_filter();
  const sock_fprog filter{static_cast<unsigned short>(lines.size()), lines.data()};
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) throw MachineError(log_path + ": " + std::strerror(errno));
  std::array<int, 2> gate{-1, -1}, input{-1, -1}, output{-1, -1};
  make_pipe(gate);
  if (with_pipes) {
    // A socket, not a pipe: to write to a server that has ended is then an error and no signal.
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input.data()) != 0)
      throw MachineError(std::string("cannot make a socket pair: ") + std::strerror(errno));
    make_pipe(output);
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(gate[1]);
    become(command.c_str(), filter, {gate[0], input[0], output[1], log});
  }
  const int fork_error = errno;
  close_all({gate[0], input[0], output[1], log});
  if (pid < 0) {
    close_all({gate[1], input[1], output[0]});
    throw MachineError(std::string("cannot start a process: ") + std::strerror(fork_error));
  }
  constexpr long kOptions = PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                            PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD;
  const bool seized = ::ptrace(PTRACE_SEIZE, pid, nullptr, kOptions) == 0;
  const int seize_error = errno;
  if (seized && ::write(gate[1], "g", 1) != 1) ::kill(pid, SIGKILL);
  ::close(gate[1]);
  if (!seized) {
    close_all({input[1], output[0]});
    ::waitpid(pid, nullptr, 0);
    throw MachineError(std::string("a process cannot be traced: ") + std::strerror(seize_error));
  }
  return {pid, input[1], output[0]};
}

}  // namespace lockstep::program
