#include "harness/suites/foreign_saver/tracer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/suites/foreign_saver/system_calls.h"

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

/// Forks, installs the filter and executes `sh -c command` in a session of its own, seized by the calling thread. Throws
/// MachineError.
static Started start_traced(const std::string& command, const std::string& log_path, bool with_pipes) {
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

#if !defined(__linux__) || !defined(__x86_64__)
#error "the tracer reads registers of x86-64 under Linux; leave harness/suites/foreign_saver out elsewhere"
#endif

namespace lockstep::program {
namespace {

constexpr long kWakeUpEvery_ns = 20'000'000;

/// As long as it lives, blocking calls of the thread that made it end with EINTR every few hundredths of a second: a wait
/// for ptrace's stops has no time limit of its own, and the thread can look at the clock.
class WakeUp {
 public:
  WakeUp() {
    static std::once_flag once;
    std::call_once(once, [] {
      struct sigaction action {};
      action.sa_handler = [](int) {};  // no SA_RESTART: a wait shall end
      ::sigaction(SIGRTMIN, &action, nullptr);
    });
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGRTMIN;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0)
      throw MachineError(std::string("cannot make a timer: ") + std::strerror(errno));
    // A signal that comes before the wait begins is lost, the next one is not.
    const itimerspec every{{0, kWakeUpEvery_ns}, {0, kWakeUpEvery_ns}};
    ::timer_settime(timer_, 0, &every, nullptr);
  }
  ~WakeUp() { ::timer_delete(timer_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

 private:
  timer_t timer_{};
};

/// The process that a thread belongs to; the thread itself if that is not known.
pid_t group_of(pid_t thread) {
  const std::string status = read_file(fmt::format("/proc/{}/status", thread)).text;
  const std::size_t at = status.find("Tgid:");
  return at == std::string::npos ? thread : static_cast<pid_t>(std::strtol(status.c_str() + at + 5, nullptr, 10));
}

/// As the kernel has it: at most 15 bytes.
std::string name_of_process(pid_t pid) {
  std::string name = read_file(fmt::format("/proc/{}/comm", pid)).text;
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

/// Does the thread run, want a processor or wait for a disk, or is it stopped at a call that has not been looked at? A
/// thread that waits for another one, or for a time, does not.
bool is_computing(pid_t group, pid_t thread) {
  const std::string stat = read_file(fmt::format("/proc/{}/task/{}/stat", group, thread)).text;
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return false;
  const char state = stat[name_end + 2];
  return state == 'R' || state == 'D' || state == 't';
}

constexpr const char* kNoTracing =
    "ptrace is refused here; a container needs --cap-add=SYS_PTRACE, a hardened kernel kernel.yama.ptrace_scope below 3";

struct Thread {
  pid_t group = 0;      ///< its process
  std::string process;  ///< its lineage; empty: the server's own
  bool finishing = false;             ///< the end of an operation is waited for
  std::size_t operation = 0;          ///< of the run's operations, then
  std::optional<int> result_instead;  ///< that the call returns, then
  std::optional<user_regs_struct> registers_after;  ///< arguments as the program gave them, then
};

}  // namespace

std::string tracing_problem() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  if (pid < 0) return std::string("cannot start a process: ") + std::strerror(errno);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : kNoTracing;
}

class Tracer::Loop {
 public:
  explicit Loop(std::string log_path) : log_path_(std::move(log_path)) {}
  ~Loop() {
    for (const auto& [tid, thread] : threads_) ::kill(thread.group, SIGKILL);
    while (!threads_.empty() && step()) {
    }
    close_pipes();
  }

  TracedRun run(const std::string& command, const TraceOptions& options) {
    begin(options);
    const Started started = start_traced(command, log_path_, false);
    add_root(started.pid);
    pump();
    return std::move(run_);
  }

  std::string start_server(const std::string& command, double deadline_s) {
    TraceOptions options;
    options.deadline_s = deadline_s;
    begin(options);
    close_pipes();
    const Started started = start_traced(command, log_path_, true);
    server_ = started.pid;
    input_ = started.input;
    output_ = started.output;
    ::fcntl(output_, F_SETFL, O_NONBLOCK);
    threads_[server_].group = server_;
    const WakeUp wake_up;
    while (server_ > 0 && said_.find("ready\n") == std::string::npos && monotonic_s() < deadline_) {
      if (!step()) break;
      drain();
    }
    if (server_ > 0 && said_.find("ready\n") != std::string::npos) return "";
    const bool ended = server_ <= 0;
    if (!ended) ::kill(server_, SIGKILL);
    while (!threads_.empty() && step()) {
    }
    return ended ? "the server ended before it printed \"ready\""
                 : fmt::format("the server did not print \"ready\" within {:g} s", deadline_s);
  }

  bool has_server() const { return server_ > 0; }

  TracedRun run_line(const std::string& line, const TraceOptions& options) {
    begin(options);
    awaits_root_ = true;
    const std::string text = line + "\n";
    if (::send(input_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
      awaits_root_ = false;  // it has ended: the run has no exit status
      return std::move(run_);
    }
    pump();
    awaits_root_ = false;
    return std::move(run_);
  }

  std::string printed() const {
    constexpr std::streamoff kMost = 4096;
    std::ifstream stream(log_path_, std::ios::binary | std::ios::ate);
    const std::streamoff size = stream.tellg();
    const std::streamoff begin = std::max(log_begin_, size - kMost);
    if (!stream || begin >= size) return "";
    stream.seekg(begin);
    std::string text(static_cast<std::size_t>(size - begin), '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }

 private:
  void begin(const TraceOptions& options) {
    options_ = options;
    run_ = TracedRun{};
    next_index_.clear();
    children_.clear();
    seen_.clear();
    held_.clear();
    root_ = 0;
    full_ = false;
    deadline_ = monotonic_s() + options.deadline_s;
    root_ended_at_ = -1;
    struct stat facts {};
    log_begin_ = ::stat(log_path_.c_str(), &facts) == 0 ? facts.st_size : 0;
  }

  void add_root(pid_t pid) {
    root_ = pid;
    threads_[pid] = {pid, "0", false, 0, {}, {}};
    seen_.insert("0");
  }

  bool is_trials(const Thread& thread) const { return !thread.process.empty(); }
  bool any_left() const {
    return awaits_root_ || std::ranges::any_of(threads_, [&](const auto& each) { return is_trials(each.second); });
  }
  bool lives(const std::string& process) const {
    return std::ranges::any_of(threads_, [&](const auto& each) { return each.second.process == process; });
  }

  /// Until every process of the run has ended.
  void pump() {
    const WakeUp wake_up;
    while (any_left()) {
      if (!step()) break;
      drain();
      look_at_the_clock();
    }
  }

  void look_at_the_clock() {
    const double now = monotonic_s();
    const bool stop = options_.stop_requested != nullptr && *options_.stop_requested != 0;
    const bool outlived = root_ended_at_ >= 0 && now > root_ended_at_ + options_.grace_s;
    if (now > deadline_ || stop || outlived) {
      if (!outlived) run_.hung = true;
      if (awaits_root_ && server_ > 0) ::kill(server_, SIGKILL);  // it took no line: it is of no more use
      kill_trial();
      deadline_ = now + options_.deadline_s;
    }
    release_if_due(now);
  }

  void kill_trial() {
    for (const auto& [tid, thread] : threads_) {
      if (is_trials(thread)) ::kill(thread.group, SIGKILL);
    }
  }

  /// One event. False: there is nothing to wait for.
  bool step() {
    int status = 0;
    const pid_t tid = ::waitpid(-1, &status, __WALL | __WNOTHREAD);
    if (tid < 0) return errno == EINTR;
    if (WIFEXITED(status) || WIFSIGNALED(status))
      on_end(tid, status);
    else if (WIFSTOPPED(status))
      on_stop(tid, status);
    return true;
  }

  void on_end(pid_t tid, int status) {
    early_.erase(tid);
    threads_.erase(tid);
    held_.erase(tid);
    if (tid == root_ && root_ended_at_ < 0) {
      run_.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      root_ended_at_ = monotonic_s();
    }
    if (tid == server_) {
      server_ = -1;
      awaits_root_ = false;
    }
    release_if_due(monotonic_s());
  }

  void go_on(pid_t tid, int signal = 0) { ::ptrace(PTRACE_CONT, tid, nullptr, static_cast<long>(signal)); }

  void on_stop(pid_t tid, int status) {
    const int signal = WSTOPSIG(status), event = status >> 16;
    if (!threads_.contains(tid)) {  // its parent's event has not come yet
      early_.insert(tid);
      return;
    }
    switch (event) {
      case PTRACE_EVENT_SECCOMP: on_call(tid); return;
      case PTRACE_EVENT_FORK:
      case PTRACE_EVENT_VFORK:
      case PTRACE_EVENT_CLONE: on_child(tid); return;
      case PTRACE_EVENT_EXEC: on_exec(tid); return;
      case PTRACE_EVENT_STOP:
        if (signal == SIGTRAP)
          go_on(tid);
        else
          ::ptrace(PTRACE_LISTEN, tid, nullptr, nullptr);
        return;
      default: break;
    }
    if (signal == (SIGTRAP | 0x80))
      on_return(tid);
    else
      go_on(tid, signal);
  }

  void on_child(pid_t parent) {
    unsigned long message = 0;
    ::ptrace(PTRACE_GETEVENTMSG, parent, nullptr, &message);
    const auto child = static_cast<pid_t>(message);
    const Thread& old = threads_[parent];
    Thread made;
    made.group = group_of(child);
    if (made.group == old.group) {
      made.process = old.process;
    } else if (is_trials(old)) {
      made.process = fmt::format("{}.{}", old.process, ++children_[old.process]);
    } else if (awaits_root_) {
      made.process = "0";
      root_ = child;
      awaits_root_ = false;
    }
    if (!made.process.empty()) seen_.insert(made.process);
    threads_[child] = made;
    if (early_.erase(child) > 0) go_on(child);
    go_on(parent);
  }

  /// A thread that executes takes its process's number; its own is gone.
  void on_exec(pid_t tid) {
    unsigned long message = 0;
    ::ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &message);
    if (const auto former = static_cast<pid_t>(message); former != tid) threads_.erase(former);
    go_on(tid);
  }

  static StoppedCall stopped_call(pid_t tid, const user_regs_struct& registers) {
    return {tid, find_system_call(static_cast<long>(registers.orig_rax)),
            {registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9}};
  }

  void on_call(pid_t tid) {
    Thread& thread = threads_[tid];
    unsigned long message = 0;
    ::ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &message);
    if (message == kForeignCall && is_trials(thread))
      run_.notes.insert("a program of another architecture (32 bits) ran; its operations are not seen");
    if (message == kForeignCall || !is_trials(thread) || options_.watched.empty()) return go_on(tid);
    user_regs_struct registers{};
    if (::ptrace(PTRACE_GETREGS, tid, nullptr, &registers) != 0) return;
    const StoppedCall stopped = stopped_call(tid, registers);
    if (stopped.call == nullptr) return go_on(tid);
    if (stopped.call->shape == Shape::ring) {
      run_.notes.insert(fmt::format("{} was called: what is written through it is not seen", stopped.call->name));
      return go_on(tid);
    }
    std::optional<Operation> operation = operation_of(stopped, options_.watched, options_.whole);
    if (!operation) return go_on(tid);
    if (operation->kind == OperationKind::map)
      run_.notes.insert("a file was mapped shared for writing: what is stored through the mapping is not seen");
    operation->process = thread.process;
    operation->index = ++next_index_[thread.process];
    operation->number = static_cast<int64_t>(run_.operations.size()) + 1;
    run_.programs.try_emplace(thread.process, name_of_process(thread.group));
    run_.operations.push_back(*std::move(operation));
    thread.operation = run_.operations.size() - 1;
    injected(tid, thread, registers);
  }

  void injected(pid_t tid, Thread& thread, user_regs_struct& registers) {
    const Operation& operation = run_.operations[thread.operation];
    const Intervention& wanted = options_.intervention;
    const bool about_space = wanted.injected == InjectedFault::fail_space || wanted.error == ENOSPC || wanted.error == EDQUOT;
    const bool here = wanted.injected != InjectedFault::nothing && operation.process == wanted.process && operation.index == wanted.index &&
                      !(about_space && stands_already(operation));
    if (here) {
      run_.acted = true;
      run_.acted_at = operation.number;
    }
    if (here && wanted.injected == InjectedFault::fail_space) full_ = true;
    if (full_ && needs_space(operation)) return refuse(tid, thread, registers, ENOSPC);
    // One preemption is a schedule only if it is the only one: the rival begins when the other one is held.
    if (wanted.injected == InjectedFault::hold && !run_.acted && !run_.stuck && operation.process == wanted.until) return hold(tid);
    if (!here) return finish(tid, thread);
    switch (wanted.injected) {
      case InjectedFault::kill: ::kill(thread.group, SIGKILL); return;
      case InjectedFault::kill_all: kill_trial(); return;
      case InjectedFault::fail: return refuse(tid, thread, registers, wanted.error);
      case InjectedFault::fail_space: return refuse(tid, thread, registers, ENOSPC);
      case InjectedFault::shorten: return shorten(tid, thread, registers);
      case InjectedFault::hold:
        release_all();  // the rival, which stood before its first operation until now
        return hold(tid);
      case InjectedFault::nothing: break;
    }
    finish(tid, thread);
  }

  /// Lets the call take place and waits for its end.
  void finish(pid_t tid, Thread& thread) {
    thread.finishing = true;
    ::ptrace(PTRACE_SYSCALL, tid, nullptr, nullptr);
  }

  void refuse(pid_t tid, Thread& thread, user_regs_struct& registers, int error) {
    Operation& operation = run_.operations[thread.operation];
    // Whatever close returns, the file is closed.
    if (operation.kind == OperationKind::close) {
      thread.result_instead = -error;
      return finish(tid, thread);
    }
    operation.result = -error;
    registers.orig_rax = ~0ULL;
    registers.rax = static_cast<unsigned long long>(-static_cast<long long>(error));
    ::ptrace(PTRACE_SETREGS, tid, nullptr, &registers);
    go_on(tid);
  }

  void shorten(pid_t tid, Thread& thread, user_regs_struct& registers) {
    thread.registers_after = registers;
    const std::string& call = run_.operations[thread.operation].call;
    if (call == "writev" || call == "pwritev" || call == "pwritev2") {
      if (registers.rdx > 1) registers.rdx /= 2;
    } else {
      registers.rdx /= 2;
    }
    ::ptrace(PTRACE_SETREGS, tid, nullptr, &registers);
    finish(tid, thread);
  }

  void on_return(pid_t tid) {
    Thread& thread = threads_[tid];
    if (!thread.finishing) return go_on(tid);
    thread.finishing = false;
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, tid, nullptr, &registers);
    const bool changed = thread.result_instead || thread.registers_after;
    if (thread.registers_after) registers.rdx = thread.registers_after->rdx;
    if (thread.result_instead)
      registers.rax = static_cast<unsigned long long>(static_cast<long long>(*thread.result_instead));
    if (changed) ::ptrace(PTRACE_SETREGS, tid, nullptr, &registers);
    thread.result_instead.reset();
    thread.registers_after.reset();
    Operation& operation = run_.operations[thread.operation];
    operation.result = static_cast<int64_t>(registers.rax);
    if (options_.whole) complete(operation, stopped_call(tid, registers), options_.watched);
    go_on(tid);
  }

  void hold(pid_t tid) {
    held_.insert(tid);
    moved_at_ = held_at_ = monotonic_s();
    operations_then_ = run_.operations.size();
    samples_ = busy_samples_ = 0;
    release_if_due(moved_at_);
  }

  void release_all() {
    for (const pid_t tid : std::exchange(held_, {})) finish(tid, threads_[tid]);
  }

  /// Held threads go on when the process that they stand for has ended, or when nothing else moves any more.
  void release_if_due(double now) {
    if (held_.empty()) return;
    const std::string& other = run_.acted ? options_.intervention.until : options_.intervention.process;
    const bool ended = seen_.contains(other) && !lives(other);
    const bool stuck = !ended && (nothing_moves(now) || now - held_at_ > options_.deadline_s / 3);
    if (!ended && !stuck) return;
    run_.stuck = run_.stuck || stuck;
    if (run_.acted) run_.released_at = static_cast<int64_t>(run_.operations.size()) + 1;
    release_all();
  }

  /// Has no operation begun for the time of patience, and was hardly ever one of the other threads found computing? One
  /// that polls for the held writer is asleep in nearly all samples; one that wants a processor is in none.
  bool nothing_moves(double now) {
    if (run_.operations.size() != operations_then_) {
      operations_then_ = run_.operations.size();
      moved_at_ = now;
      samples_ = busy_samples_ = 0;
    }
    ++samples_;
    if (others_compute()) ++busy_samples_;
    if (now - moved_at_ < options_.patience_s) return false;
    if (samples_ >= kFewestSamples && busy_samples_ * 5 <= samples_) return true;
    if (samples_ >= kFewestSamples) {
      moved_at_ = now;
      samples_ = busy_samples_ = 0;
    }
    return false;
  }

  bool others_compute() const {
    for (const auto& [tid, thread] : threads_) {
      if (held_.contains(tid) || !is_trials(thread)) continue;
      if (is_computing(thread.group, tid)) return true;
    }
    return false;
  }

  /// Takes what the server printed; its pipe must not fill up.
  void drain() {
    if (output_ < 0) return;
    char block[4096];
    ssize_t got = 0;
    while ((got = ::read(output_, block, sizeof block)) > 0) {
      said_.append(block, static_cast<std::size_t>(got));
      if (said_.size() > 2 * sizeof block) said_.erase(0, said_.size() - sizeof block);
    }
  }

  void close_pipes() {
    for (int* end : {&input_, &output_}) {
      if (*end >= 0) ::close(*end);
      *end = -1;
    }
  }

  std::string log_path_;
  std::streamoff log_begin_ = 0;
  TraceOptions options_;
  TracedRun run_;
  std::map<pid_t, Thread> threads_;
  std::set<pid_t> early_;
  std::map<std::string, int64_t> next_index_, children_;
  std::set<std::string> seen_;
  std::set<pid_t> held_;
  pid_t root_ = 0, server_ = -1;
  int input_ = -1, output_ = -1;
  static constexpr int kFewestSamples = 10;
  std::size_t operations_then_ = 0;
  int samples_ = 0, busy_samples_ = 0;
  std::string said_;
  bool awaits_root_ = false, full_ = false;
  double deadline_ = 0, root_ended_at_ = -1, moved_at_ = 0, held_at_ = 0;
};

Tracer::Tracer(std::string log_path) : loop_(std::make_unique<Loop>(std::move(log_path))) {}
Tracer::~Tracer() = default;
TracedRun Tracer::run(const std::string& command, const TraceOptions& options) { return loop_->run(command, options); }
std::string Tracer::start_server(const std::string& command, double deadline_s) {
  return loop_->start_server(command, deadline_s);
}
bool Tracer::has_server() const { return loop_->has_server(); }
TracedRun Tracer::run_line(const std::string& line, const TraceOptions& options) { return loop_->run_line(line, options); }
std::string Tracer::printed() const { return loop_->printed(); }

}  // namespace lockstep::program
