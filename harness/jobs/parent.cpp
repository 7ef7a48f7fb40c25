#include "harness/jobs/parent.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/run_folder.h"

namespace lockstep {
namespace {

constexpr double kReachWithin_s = 2, kAgainWithin_s = 0.2, kAgainAfter_s = 1;
constexpr int kConnectEvery_ms = 50;

}  // namespace

HeartbeatLine::HeartbeatLine(const std::string& folder, const Arrival& mine, int task_rank, int world_size) {
  const std::optional<Watcher> watcher = read_watcher(folder);
  if (!watcher) return;
  if (same_host(*watcher, mine)) {
    tracer_ = watcher->process;
    return;
  }
  watcher_ = *watcher;
  task_rank_ = task_rank;
  what_.run = watcher->run;
  what_.dir = folder;
  what_.world_size = world_size;
  what_.processes = task_rank < 0 ? 1 : world_size;
  what_.first = std::max(task_rank, 0);
  what_.heartbeats = heartbeats_of_rank(mine.rank);
  heartbeats_.prepare(what_);
  std::string problem;
  // Lockstep listens for other hosts once it has seen that a rank is on one.
  for (const double until = monotonic_s() + kReachWithin_s; !connect(until - monotonic_s(), problem); ::poll(nullptr, 0, kConnectEvery_ms)) {
    if (problem != std::strerror(ECONNREFUSED) || monotonic_s() > until) break;
  }
  if (desk_ != nullptr) return;
  std::fprintf(stderr,
               "lockstep-rank: rank %d (host %s) cannot tell lockstep (host %s) at %s:%d how it gets on: %s. If it hangs, only its peers' "
               "timeouts will say so; set LOCKSTEP_ADDRESS where lockstep runs to what this host sees\n",
               mine.rank, mine.host.c_str(), watcher->host.c_str(), watcher->address.c_str(), watcher->port, problem.c_str());
}

bool HeartbeatLine::connect(double deadline_s, std::string& problem) {
  tried_at_ = monotonic_s();
  // The port may be another one by now.
  if (auto watcher = read_watcher(what_.dir)) watcher_ = *std::move(watcher);
  const int there = connected_within(watcher_.address, watcher_.port, std::max(deadline_s, 0.0), problem);
  if (there < 0) return false;
  set_side_channel(there);
  desk_ = std::make_unique<LineSocket>(there);
  if (!desk_->send(desk_line(watcher_, task_rank_))) desk_.reset();
  return desk_ != nullptr;
}

void HeartbeatLine::started(pid_t rank) {
  if (what_.heartbeats != kHeartbeatFile) heartbeats_.started(what_, {rank});
}

int HeartbeatLine::patience_ms() const {
  const int wanted = heartbeats_.patience_ms();
  return wanted < 0 ? kConnectEvery_ms : std::min(wanted, kConnectEvery_ms);
}

void HeartbeatLine::look() {
  std::string problem;
  if (desk_ == nullptr && what_.heartbeats != kHeartbeatFile && monotonic_s() - tried_at_ > kAgainAfter_s) connect(kAgainWithin_s, problem);
  take();
  heartbeats_.look(monotonic_s());
}

void HeartbeatLine::ended() { heartbeats_.ended(what_.run); }

void HeartbeatLine::take() {
  if (desk_ == nullptr) return;
  bool there = desk_->receive();
  while (const auto line = desk_->line()) {
    try {
      const ParentCommand command = command_from_line(*line);
      if (command.op == ParentCommand::Op::heartbeat) heartbeats_.take(command);
    } catch (const std::runtime_error&) {
      there = false;  // it does not speak as we do
    }
  }
  // The rank goes on; what it does is seen by nobody until the connection is there again.
  if (!there) desk_.reset();
}

namespace {

/// A small part of the shortest threshold that configs are given, and no load on a host that computes.
constexpr int kForwardEvery_ms = 20;
/// How a rank's process is, told though the rank reports nothing: whether it hangs is judged from that.
constexpr double kStatesEvery_s = 0.1;

}  // namespace

void HeartbeatForward::prepare(const RankStart& what) {
  if (what.heartbeats == kHeartbeatFile) return;
  const std::string path = what.dir + "/" + what.heartbeats;
  HeartbeatFile heartbeats = HeartbeatFile::create(path, what.world_size);
  runs_.erase(what.run);
  runs_.emplace(what.run, Watched{path, std::move(heartbeats), what.first, what.processes == 1, {}, {}, std::vector<uint64_t>(static_cast<std::size_t>(what.world_size), 0)});
}

void HeartbeatForward::started(const RankStart& what, const std::vector<int>& pids) {
  const auto found = runs_.find(what.run);
  if (found == runs_.end()) return;
  found->second.pids = pids;
}

void HeartbeatForward::take(const ParentCommand& command) {
  const auto found = runs_.find(command.run);
  if (found == runs_.end() || command.rank < 0 || command.rank >= found->second.heartbeats.world_size()) return;
  found->second.heartbeats.take(command.rank, command.heartbeat);
}

void HeartbeatForward::ended(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  look(run, found->second, found->second.states_told_at);
  (void)real_files().remove(found->second.path);
  runs_.erase(found);
}

void HeartbeatForward::look(double now) {
  for (auto& [run, watched] : runs_) look(run, watched, now);
}

int HeartbeatForward::patience_ms() const { return runs_.empty() ? -1 : kForwardEvery_ms; }

void HeartbeatForward::look(const std::string& run, Watched& watched, double now) {
  const bool states_due = now - watched.states_told_at >= kStatesEvery_s;
  if (states_due) watched.states_told_at = now;
  const int last = watched.one_process && !watched.pids.empty() ? watched.heartbeats.world_size() : watched.first + static_cast<int>(watched.pids.size());
  for (int rank = watched.first; rank < last; ++rank) {
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::heartbeat;
    event.run = run;
    event.rank = rank;
    event.heartbeat = watched.heartbeats.note(rank);
    uint64_t& told = watched.told[static_cast<std::size_t>(rank)];
    const auto here = static_cast<std::size_t>(rank - watched.first);
    if (watched.views.size() <= here) {
      watched.views.push_back(live_view(watched.pids[watched.one_process ? 0 : here]));
      watched.views.back()->mark(now);
    }
    ProcessView& process = *watched.views[here];
    if (event.heartbeat.changes == told && !states_due) continue;
    if (event.heartbeat.changes != told) process.mark(now);
    told = event.heartbeat.changes;
    event.heartbeat.process = process.state();
    event.heartbeat.times = process.since(now);
    tell_(event);
  }
}

namespace {

constexpr int kThrew = 1;

/// Reads back as the same double.
std::string exact_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

struct Child {
  std::string run;
  int rank;
  int notices = -1;  ///< our end of its side channel
};

std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return std::to_string(signal) + (name == nullptr ? "" : std::string(" (SIG") + name + ")");
}

/// What the others are told of this end; empty: it is none that takes their peer from them.
std::string words_on(const LauncherEvent& end) {
  constexpr int kEndsInOrder = 128;  // after an agreed step, because a signal asked for it
  const std::string who = "rank " + std::to_string(end.rank);
  if (end.signal != 0) return who + " was killed by signal " + signal_name(end.signal);
  if (end.code != 0 && end.code < kEndsInOrder) return who + " exited with status " + std::to_string(end.code);
  return "";
}

/// Signals as a program finds them when it starts, but for three that would end a rank without a word, and for those that
/// its job may have handlers for: they are held back until it has (`release_stop_signals`).
void restore_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);  // a peer that is gone shall be an error that the rank can report
  ::signal(SIGXFSZ, SIG_IGN);  // a limit on files, too
  ::signal(SIGHUP, SIG_IGN);   // sent when a group that holds a stopped rank loses its parent
  const sigset_t held = stop_signals();
  ::sigprocmask(SIG_SETMASK, &held, nullptr);
}

/// The rank program from its beginning, as one process of the run. Process id, group, output and the signal
/// at the parent's death stay those of the fork.
[[noreturn]] void become_program(const RankTask& task) {
  const std::string rank = std::to_string(task.rank), local = std::to_string(task.local_rank), started = exact_text(task.command_started);
  ::execl("/proc/self/exe", "lockstep-rank", kRankOption, rank.c_str(), task.run_dir.c_str(), started.c_str(), task.address.c_str(),
          task.heartbeats.c_str(), local.c_str(), static_cast<char*>(nullptr));
  std::fprintf(stderr, "rank %d: cannot start the rank program anew: %s\n", task.rank, std::strerror(errno));
  ::_exit(kThrew);
}

class Parent {
 public:
  Parent(int socket, const RankProgram& program) : socket_(socket), program_(program) {}
  int serve();

 private:
  void obey(const ParentCommand& command);
  void start(const ParentCommand& command);
  void make_ready(const ParentCommand& command);
  std::string fork_rank(const ParentCommand& command, int rank, std::vector<int>& pids);
  [[noreturn]] void be_rank(const RankTask& task, int log, pid_t group, bool executed, int notices);
  void tell(const LauncherEvent& event) { socket_.send(to_line(event)); }
  void tell_signal(int signal);
  void reap(bool wait);
  void tell_ranks(const std::string& run, const std::string& why);
  void kill_all();

  LineSocket socket_;
  const RankProgram& program_;
  std::map<pid_t, Child> children_;
  std::map<std::string, pid_t> groups_;  ///< runs that have children
  HeartbeatForward heartbeats_{[this](const LauncherEvent& event) { tell(event); }};
  const pid_t own_pid_ = ::getpid(), launcher_pid_ = ::getppid();
  const Urgent urgent_;  ///< ranks wait for its word on a peer that is gone
  bool quit_ = false;
};

int Parent::serve() {
  sigset_t taken = signals_of_a_job();
  sigaddset(&taken, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &taken, nullptr);
  const int signals = ::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  LOCKSTEP_CHECK(signals >= 0, std::string("signalfd: ") + std::strerror(errno));
  LauncherEvent ready;
  tell(ready);
  while (!quit_) {
    std::array<pollfd, 2> wait = {{{socket_.descriptor(), POLLIN, 0}, {signals, POLLIN, 0}}};
    const int came = ::poll(wait.data(), wait.size(), heartbeats_.patience_ms());
    heartbeats_.look(monotonic_s());
    if (came < 0) continue;
    if (wait[1].revents != 0) {
      signalfd_siginfo came{};
      while (::read(signals, &came, sizeof came) > 0) {
        // Others are the launcher's own matter: it gets them too.
        if (came.ssi_signo == SIGTERM || came.ssi_signo == SIGUSR1) tell_signal(static_cast<int>(came.ssi_signo));
      }
      reap(false);
    }
    if (wait[0].revents == 0) continue;
    const bool there = socket_.receive();
    while (const auto line = socket_.line()) obey(command_from_line(*line));
    if (!there) quit_ = true;
  }
  kill_all();
  ::close(signals);
  return 0;
}

void Parent::tell_signal(int signal) {
  LauncherEvent event;
  event.kind = LauncherEvent::Kind::told_to_stop;
  event.signal = signal;
  tell(event);
}

void Parent::obey(const ParentCommand& command) {
  switch (command.op) {
    case ParentCommand::Op::start:
      start(command);
      break;
    case ParentCommand::Op::kill:
      if (const auto group = groups_.find(command.run); group != groups_.end())
        ::killpg(group->second, command.signal);
      break;
    case ParentCommand::Op::tell:
      tell_ranks(command.run, command.why);
      break;
    case ParentCommand::Op::heartbeat:
      heartbeats_.take(command);
      break;
    case ParentCommand::Op::quit:
      quit_ = true;
      break;
  }
}

void Parent::start(const ParentCommand& command) {
  LOCKSTEP_CHECK(!groups_.contains(command.run), "a run that is going cannot be started: " + command.run);
  std::vector<int> pids;
  std::string problem;
  heartbeats_.prepare(command);
  make_ready(command);
  const int last = command.here > 0 ? command.first + command.here : command.processes;
  for (int r = command.first; r < last && problem.empty(); ++r) {
    problem = fork_rank(command, command.processes == 1 ? -1 : r, pids);
  }
  if (!problem.empty()) {
    for (const int pid : pids) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      ::close(children_.at(pid).notices);
      children_.erase(pid);
    }
    groups_.erase(command.run);
    heartbeats_.ended(command.run);
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::refused;
    event.run = command.run;
    event.message = problem;
    tell(event);
    return;
  }
  heartbeats_.started(command, pids);
  LauncherEvent event;
  event.kind = LauncherEvent::Kind::started;
  event.run = command.run;
  event.pids = std::move(pids);
  tell(event);
}

void Parent::make_ready(const ParentCommand& command) {
  if (program_.make_ready == nullptr || command.executed) return;
  try {
    program_.make_ready(command.dir);
  } catch (const std::exception&) {
    // Its ranks will find the same, and say it where they are heard.
  }
}

/// Returns what went wrong, or nothing.
std::string Parent::fork_rank(const ParentCommand& command, int rank, std::vector<int>& pids) {
  const std::string log_path = rank_log_path(command.dir, rank);
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return log_path + ": " + std::strerror(errno);
  const pid_t group = pids.empty() ? 0 : pids.front();  // the first rank leads the run's process group
  std::array<int, 2> channel{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel.data()) != 0) {
    const int error = errno;
    ::close(log);
    return std::string("a side channel: ") + std::strerror(error);
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(channel[0]);
    RankTask task{command.dir, rank, command.command_started, kNotices};
    if (!command.address.empty()) task.address = command.address;
    task.heartbeats = command.heartbeats;
    task.local_rank = static_cast<int>(pids.size());
    task.watched = command.heartbeats == kHeartbeatFile;
    be_rank(task, log, group, command.executed, channel[1]);
  }
  const int error = errno;
  ::close(log);
  ::close(channel[1]);
  if (pid < 0) {
    ::close(channel[0]);
    return std::string("fork: ") + std::strerror(error);
  }
  ::setpgid(pid, group);  // the child does the same: whoever comes first
  pids.push_back(pid);
  children_[pid] = {command.run, rank, channel[0]};
  groups_[command.run] = pids.front();
  return {};
}

void Parent::be_rank(const RankTask& task, int log, pid_t group, bool executed, int notices) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != own_pid_) ::_exit(kThrew);
  ::setpgid(0, group);
  Urgent::be_ordinary();
  // Where only a parent may trace a process: the tool that takes a hung rank's stacks is the launcher's child.
  ::prctl(PR_SET_PTRACER, launcher_pid_);
  restore_signals();
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  // Open over the exec, where there is one.
  if (notices == kNotices)
    ::fcntl(kNotices, F_SETFD, 0);
  else
    ::dup2(notices, kNotices);
  ::close_range(kNotices + 1, ~0U, 0);
  if (executed) become_program(task);
  ::_exit(run_guarded(program_.run, task));  // destructors of the parent's objects are the parent's
}

void Parent::reap(bool wait) {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, wait ? 0 : WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return;
    const auto found = children_.find(pid);
    if (found == children_.end()) continue;
    const Child child = found->second;
    children_.erase(found);
    bool last = true;
    for (const auto& [other_pid, other] : children_) last = last && other.run != child.run;
    if (last) {
      groups_.erase(child.run);
      heartbeats_.ended(child.run);
    }
    ::close(child.notices);
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::exit;
    event.run = child.run;
    event.rank = child.rank;
    if (WIFSIGNALED(status))
      event.signal = WTERMSIG(status);
    else
      event.code = WEXITSTATUS(status);
    // The others first: each waits for a peer that is gone.
    if (const std::string words = words_on(event); !words.empty() && !last) tell_ranks(child.run, words);
    tell(event);
  }
}

/// One packet to each; a rank that does not read has no use for it.
void Parent::tell_ranks(const std::string& run, const std::string& why) {
  constexpr std::size_t kMost_bytes = 4096;
  for (const auto& [pid, child] : children_) {
    if (child.run == run) ::send(child.notices, why.data(), std::min(why.size(), kMost_bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Parent::kill_all() {
  for (const auto& [run, group] : groups_) ::killpg(group, SIGKILL);
  reap(true);
}

}  // namespace

int run_guarded(const std::function<int(const RankTask&)>& run_rank, const RankTask& task) {
  ::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was printed before a crash shall be in the log
  int status = kThrew;
  try {
    status = run_rank(task);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", task.rank, error.what());
  } catch (...) {
    std::fprintf(stderr, "rank %d: threw something that is no std::exception\n", task.rank);
  }
  std::fflush(nullptr);
  return status;
}

int serve_ranks(int socket, const RankProgram& program) { return Parent(socket, program).serve(); }

void release_stop_signals() {
  const sigset_t held = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

pid_t fork_guarded(const RankTask& task, const std::function<int(const RankTask&)>& run_rank, pid_t tracer) {
  const int log = ::open(rank_log_path(task.run_dir, task.rank).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return -1;
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kThrew);
    if (tracer > 0) ::prctl(PR_SET_PTRACER, tracer);
    restore_signals();
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    // What launchers talk by is no rank's business.
    const auto kept = static_cast<unsigned>(std::max(task.meet.listening, STDERR_FILENO));
    if (kept > STDERR_FILENO + 1U) ::close_range(STDERR_FILENO + 1, kept - 1, 0);
    ::close_range(kept + 1, ~0U, 0);
    ::_exit(run_guarded(run_rank, task));
  }
  ::close(log);
  return pid;
}

namespace {

constexpr std::size_t kMost_bytes = 4096;

}  // namespace

AbortListener::AbortListener(int channel, double grace_s, std::function<void(const std::string& why)> leave)
    : channel_(channel), grace_s_(grace_s), leave_(std::move(leave)) {
  if (channel_ < 0) return;
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  // Signals are the rank's own: the thread inherits a mask that leaves it none.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { listen(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

AbortListener::~AbortListener() {
  end_by_itself();
  if (thread_.joinable()) thread_.join();
  if (wake_ >= 0) ::close(wake_);
}

void AbortListener::listen() {
  const Urgent urgent;
  std::array<pollfd, 2> wait = {{{channel_, POLLIN, 0}, {wake_, POLLIN, 0}}};
  for (;;) {
    if (::poll(wait.data(), wait.size(), -1) < 0) continue;
    if (wait[1].revents != 0) return;
    std::array<char, kMost_bytes> packet{};
    const ssize_t n = ::recv(channel_, packet.data(), packet.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the launcher is gone; the kernel ends its ranks
    return heed(std::string(packet.data(), static_cast<std::size_t>(n)));
  }
}

void AbortListener::heed(const std::string& why) {
  std::unique_lock lock(mutex_);
  why_ = why;
  changed_.notify_all();
  const bool ends = changed_.wait_for(lock, std::chrono::duration<double>(grace_s_), [this] { return ends_by_itself_; });
  if (ends) return;
  leaving_ = true;
  lock.unlock();
  leave_(why);
  std::fflush(nullptr);
  // Sockets close with the process: peers that wait for this one, in whatever group, notice.
  ::_exit(1);
}

std::string AbortListener::told(double wait_s) {
  std::unique_lock lock(mutex_);
  if (channel_ >= 0)
    changed_.wait_for(lock, std::chrono::duration<double>(wait_s), [this] { return !why_.empty(); });
  return why_;
}

void AbortListener::end_by_itself() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !leaving_; });  // for ever, where the thread has begun to leave
  ends_by_itself_ = true;
  changed_.notify_all();
  const uint64_t one = 1;
  if (wake_ >= 0 && ::write(wake_, &one, sizeof one) < 0) ::perror("a rank's side channel");
}

}  // namespace lockstep
