#include "harness/run/launchers/local/launcher.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/job_queue.h"
#include "harness/run/libraries.h"

namespace lockstep {
namespace {

constexpr int kSocketInParent = 3;
constexpr int kExecFailed = 127;

/// In the forked child: only calls that are safe between fork and exec.
[[noreturn]] void become_parent(const char* program, char* const* arguments, char* const* environment, int socket,
                         pid_t lockstep_pid) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != lockstep_pid) ::_exit(kExecFailed);  // lockstep died before the line above
  ::setsid();
  Urgent::be_ordinary();
  // Held back from its first moment: who signals a whole job must not end the one process that its ranks hang on.
  const sigset_t held = signals_of_a_job();
  ::sigprocmask(SIG_SETMASK, &held, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // lockstep's output is data; whatever libraries print is not
  if (socket == kSocketInParent)
    ::fcntl(socket, F_SETFD, 0);
  else
    ::dup2(socket, kSocketInParent);
  ::close_range(kSocketInParent + 1, ~0U, 0);
  ::execve(program, arguments, environment);
  ::_exit(kExecFailed);
}

}  // namespace

LocalLauncher::LocalLauncher(const std::string& program) : program_(program) {
  if (::access(program.c_str(), X_OK) != 0) {
    throw MachineError(program + ": " + std::strerror(errno) +
                       "; it starts the ranks: build it (target lockstep-rank), or name it in LOCKSTEP_RANK");
  }
  // The loader's own words come too late, and name a file where a package is missing.
  if (const std::string problem = library_problem(program); !problem.empty()) throw MachineError(problem);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw MachineError(std::string("cannot make a socket pair: ") + std::strerror(errno));
  }
  socket_ = std::make_unique<LineSocket>(ends[0]);
  std::vector<std::string> words = {program, "--socket", std::to_string(kSocketInParent)};
  std::vector<std::string> variables = rank_environment();
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  const pid_t lockstep_pid = ::getpid();
  pid_ = ::fork();
  const int error = errno;
  if (pid_ == 0) become_parent(program.c_str(), arguments.data(), environment.data(), ends[1], lockstep_pid);
  ::close(ends[1]);
  if (pid_ < 0) throw MachineError("cannot start " + program + ": " + std::strerror(error));
}

LocalLauncher::~LocalLauncher() {
  if (pid_ > 0) shut_down(2.0);
}

int LocalLauncher::reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

void LocalLauncher::gone() {
  std::string how;
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);  // it has closed its socket: without it, it is of no use
    const int status = reap();
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
      how = "killed by signal " + std::to_string(WTERMSIG(status));
    else if (WIFEXITED(status))
      how = "exit status " + std::to_string(WEXITSTATUS(status));
    else
      how = "killed";
  }
  throw MachineError(program_ + ": the rank parent ended before its runs did (" + how + ")");
}

void LocalLauncher::send(const ParentCommand& command) {
  if (!socket_->send(to_line(command))) gone();
}

void LocalLauncher::start(const RankStart& what) {
  ParentCommand command;
  static_cast<RankStart&>(command) = what;
  command.op = ParentCommand::Op::start;
  send(command);
}

void LocalLauncher::stop(const std::string& run, int signal) {
  ParentCommand command;
  command.op = ParentCommand::Op::kill;
  command.run = run;
  command.signal = signal;
  send(command);
}

void LocalLauncher::tell(const std::string& run, const std::string& why) {
  ParentCommand command;
  command.op = ParentCommand::Op::tell;
  command.run = run;
  command.why = why;
  send(command);
}

std::vector<LauncherEvent> LocalLauncher::poll(double wait_s) {
  pollfd wait{socket_->descriptor(), POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(std::max(0.0, wait_s) * 1000) + 1) <= 0) return {};
  const bool there = socket_->receive();
  std::vector<LauncherEvent> events;
  while (const auto line = socket_->line()) events.push_back(event_from_line(*line));
  if (!there && events.empty()) gone();
  return events;
}

void LocalLauncher::shut_down(double deadline_s) {
  if (pid_ <= 0) return;
  socket_->send(to_line(ParentCommand{}));
  const double deadline = monotonic_s() + deadline_s;
  // Its end of the socket closes when it ends, and not before.
  bool there = true;
  while (there) {
    const double left_s = deadline - monotonic_s();
    if (left_s <= 0) break;
    pollfd wait{socket_->descriptor(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(left_s * 1000) + 1);
    if (ready > 0) there = socket_->receive();
  }
  if (there) ::kill(pid_, SIGKILL);
  reap();
}

void open_standard_streams() {
  ::signal(SIGXFSZ, SIG_IGN);
  // In rising order: open() gives the lowest number that is free.
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY) != descriptor) {
      ::_exit(7);  // without /dev/null there is nobody to tell
    }
  }
}

}  // namespace lockstep
