#include "harness/run/launchers/launcher.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/job_queue.h"
#include "harness/run/libraries.h"

namespace lockstep {
namespace {

constexpr int kNoFolder = 126, kNoProgram = 127;  // as a shell has them

/// In the forked child: only calls that are safe between fork and exec.
[[noreturn]] void become_program_of(char* const* arguments, char* const* environment, const char* folder, int log, pid_t lockstep_pid) {
  // Lockstep's own handlers would swallow what ends the child before its exec, and what it ignores its child would ignore too.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // what has started ranks ends them when it is told to
  if (::getppid() != lockstep_pid) ::_exit(kNoProgram);
  ::setsid();
  Urgent::be_ordinary();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  if (*folder != '\0' && ::chdir(folder) != 0) ::_exit(kNoFolder);
  ::execve(arguments[0], arguments, environment);
  ::_exit(kNoProgram);
}

}  // namespace

std::vector<LauncherEvent> GatheringLauncher::look_until(double wait_s, const std::function<void()>& look) {
  const double until = monotonic_s() + std::max(wait_s, 0.0);
  for (;;) {
    look();
    const double left_ms = 1000 * (until - monotonic_s());
    if (!events_.empty() || left_ms <= 0) return take_events();
    ::poll(nullptr, 0, std::clamp(static_cast<int>(left_ms) + 1, 1, kLookEvery_ms));
  }
}

pid_t start_program(ProgramStart what) {
  const std::vector<char*> arguments = pointers_to(what.words), environment = pointers_to(what.environment);
  const int log = ::open(what.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) throw MachineError(what.log + ": " + std::strerror(errno));
  const pid_t lockstep_pid = ::getpid(), pid = ::fork();
  const int error = errno;
  if (pid == 0) become_program_of(arguments.data(), environment.data(), what.folder.c_str(), log, lockstep_pid);
  ::close(log);
  if (pid < 0) throw MachineError("cannot start " + what.words.front() + ": " + std::strerror(error));
  return pid;
}

}  // namespace lockstep
