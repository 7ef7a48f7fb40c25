#include "harness/run/launchers/external/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/base/shell_word.h"
#include "harness/run/launchers/external/exit_file.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/libraries.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"

namespace lockstep {
namespace {

constexpr int kExitsEvery_ms = 20;
constexpr double kMeetWithin_s = 150;  ///< longer than ranks themselves wait for each other
constexpr double kForkWithin_s = 30;   ///< from the arrival of the last rank, which all have yet to answer
constexpr double kEndAfter_s = 1, kKillAfter_s = 3;
constexpr std::size_t kLauncherLines = 3;

std::string launcher_log(const std::string& dir) { return dir + "/launcher.log"; }

/// In the forked child: only calls that are safe between fork and exec.
[[noreturn]] void become_launcher(const char* program, char* const* arguments, char* const* environment, int log, pid_t lockstep_pid) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != lockstep_pid) ::_exit(127);
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  ::execve(program, arguments, environment);
  ::_exit(127);
}

/// What a launcher finds: ours, with the threads pinned, and without what would make its ranks another one's.
std::vector<std::string> launcher_environment() {
  std::vector<std::string> entries = rank_environment();
  std::erase_if(entries, [](const std::string& entry) { return is_rank_variable(entry.substr(0, entry.find('='))); });
  return entries;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t colon = std::min(folders.find(':', at), folders.size());
    const std::string candidate = folders.substr(at, colon - at) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = colon + 1;
  }
  return "";
}

ExternalLauncher::ExternalLauncher(std::string rank_program, std::vector<std::string> command, const std::string& install)
    : rank_program_(std::move(rank_program)), command_(std::move(command)) {
  LOCKSTEP_CHECK(!command_.empty(), "a launcher has a command");
  const std::string found = find_program(command_.front());
  if (found.empty())
    throw ConfigError(fmt::format("launcher: there is no program {}{}", command_.front(), install.empty() ? "" : "; " + install));
  command_.front() = found;
  if (const std::string problem = library_problem(rank_program_); !problem.empty()) throw MachineError(problem);
  events_.emplace_back();  // ready
}

ExternalLauncher::~ExternalLauncher() {
  if (!going_.empty()) shut_down(kKillAfter_s);
}

void ExternalLauncher::start(const RankStart& what) {
  std::vector<std::string> words;
  for (const std::string& word : command_) {
    words.push_back(replaced(replaced(replaced(word, "{ranks}", std::to_string(what.processes)), "{rank_program}", rank_program_),
                             "{run}", what.dir));
  }
  desk_.expect(what);
  std::vector<std::string> variables = launcher_environment();
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  const int log = ::open(launcher_log(what.dir).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) throw MachineError(launcher_log(what.dir) + ": " + std::strerror(errno));
  const pid_t lockstep_pid = ::getpid(), pid = ::fork();
  const int error = errno;
  if (pid == 0) become_launcher(arguments.front(), arguments.data(), environment.data(), log, lockstep_pid);
  ::close(log);
  if (pid < 0) throw MachineError("cannot start " + command_.front() + ": " + std::strerror(error));
  Going going;
  going.what = what;
  going.launcher = pid;
  going.started_at = monotonic_s();
  going.ended.assign(static_cast<std::size_t>(what.processes), false);
  going_.emplace(what.run, std::move(going));
}

void ExternalLauncher::stop(const std::string& run, int signal) {
  const auto found = going_.find(run);
  if (found == going_.end()) return;
  Going& going = found->second;
  write_stop(going.what.dir, {++going.wishes, signal});
  if (signal != SIGKILL) return;
  const double now = monotonic_s();
  going.end_launcher_at = now + kEndAfter_s;
  going.kill_launcher_at = now + kKillAfter_s;
}

bool ExternalLauncher::all_ended(const Going& going) const {
  return std::all_of(going.ended.begin(), going.ended.end(), [](bool ended) { return ended; });
}

void ExternalLauncher::look_at_exits(Going& going) {
  std::vector<RankExit> exits;
  for (int rank = 0; rank < going.what.processes; ++rank) {
    if (going.ended[static_cast<std::size_t>(rank)]) continue;
    if (const auto exit = read_exit(going.what.dir, rank)) exits.push_back(*exit);
  }
  std::stable_sort(exits.begin(), exits.end(), [](const RankExit& a, const RankExit& b) { return a.ended_at < b.ended_at; });
  for (const RankExit& exit : exits) {
    going.ended[static_cast<std::size_t>(exit.rank)] = true;
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::exit;
    event.run = going.what.run;
    event.rank = going.what.processes == 1 ? -1 : exit.rank;
    event.code = exit.code;
    event.signal = exit.signal;
    event.told = exit.told;
    events_.push_back(std::move(event));
  }
}

std::string ExternalLauncher::how_launcher_ended(const Going& going) {
  const int status = going.launcher_status;
  std::string text = WIFSIGNALED(status) ? fmt::format("its launcher was killed by signal {}", WTERMSIG(status))
                                         : fmt::format("its launcher ended with status {}", WEXITSTATUS(status));
  for (const std::string& line : last_lines(launcher_log(going.what.dir), kLauncherLines)) text += "; " + line;
  // srun's words name neither how many there should be nor what to say.
  if (text.find("More processors requested than permitted") != std::string::npos) {
    text += fmt::format(". The job has room for fewer than {} tasks: ask for so many (salloc -n {}), say --launcher 'srun --overcommit', or "
                        "take layouts of fewer ranks", going.what.processes, going.what.processes);
  }
  return text;
}

void ExternalLauncher::count_the_lost(Going& going) {
  const auto silent = [&going](int rank) {
    return read_arrival(going.what.dir, rank).nonce.empty() &&
           ::access(rank_result_path(going.what.dir, rank).c_str(), F_OK) != 0;
  };
  bool nobody = going.wishes == 0;
  for (int rank = 0; rank < going.what.processes; ++rank) nobody = nobody && silent(rank);
  if (nobody) {
    // It would be the same with the next run.
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::refused;
    event.run = going.what.run;
    event.message = how_launcher_ended(going);
    events_.push_back(std::move(event));
    going.ended.assign(going.ended.size(), true);
    return;
  }
  for (int rank = 0; rank < going.what.processes; ++rank) {
    if (going.ended[static_cast<std::size_t>(rank)]) continue;
    going.ended[static_cast<std::size_t>(rank)] = true;
    const Arrival arrival = read_arrival(going.what.dir, rank);
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::exit;
    event.run = going.what.run;
    event.rank = going.what.processes == 1 ? -1 : rank;
    event.code = 1;
    // One that gave up before it began has left a result that says why.
    event.lost = ::access(rank_result_path(going.what.dir, rank).c_str(), F_OK) != 0;
    event.message = arrival.nonce.empty()
                        ? fmt::format("was never there: {}", how_launcher_ended(going))
                        : fmt::format("left no word of its end (process {} on {}): {}", arrival.pid, arrival.host, how_launcher_ended(going));
    events_.push_back(std::move(event));
  }
}

void ExternalLauncher::look_at_launcher(Going& going, double now) {
  if (going.launcher < 0) return;
  const auto send = [&going](int signal) { ::killpg(going.launcher, signal); };
  if (!going.told_started && going.end_launcher_at == 0 && now - going.started_at > kMeetWithin_s) {
    going.end_launcher_at = now;
    going.kill_launcher_at = now + kKillAfter_s;
  }
  if (going.end_launcher_at > 0 && now >= going.end_launcher_at) {
    send(SIGTERM);
    going.end_launcher_at = 0;
  }
  if (going.kill_launcher_at > 0 && now >= going.kill_launcher_at) {
    send(SIGKILL);
    going.kill_launcher_at = 0;
  }
  if (::waitpid(going.launcher, &going.launcher_status, WNOHANG) != going.launcher) return;
  ::killpg(going.launcher, SIGKILL);  // whoever it left behind
  going.launcher = -1;
}

/// The run has started when each rank has been forked, or has given up before.
void ExternalLauncher::look_at_arrivals(Going& going, double now) {
  if (going.told_started) return;
  LauncherEvent event;
  event.kind = LauncherEvent::Kind::started;
  event.run = going.what.run;
  bool all_forked = true;
  for (int rank = 0; rank < going.what.processes; ++rank) {
    const Arrival arrival = read_arrival(going.what.dir, rank);
    if (arrival.nonce.empty()) return;
    all_forked = all_forked && (arrival.process > 0 || ::access(rank_result_path(going.what.dir, rank).c_str(), F_OK) == 0);
    // A process's number means nothing on another host.
    const bool here = same_host(arrival, desk_.host());
    event.pids.push_back(here && arrival.process > 0 ? arrival.process : -1);
    event.places.push_back(here ? "" : fmt::format("host {} (process {})", arrival.host, arrival.process));
  }
  if (going.there_at == 0) going.there_at = now;
  if (!all_forked && now - going.there_at < kForkWithin_s) return;
  going.told_started = true;
  events_.push_back(std::move(event));
}

void ExternalLauncher::look(Going& going) {
  look_at_launcher(going, monotonic_s());
  look_at_arrivals(going, monotonic_s());
  const bool launcher_gone = going.launcher < 0;
  look_at_exits(going);
  if (launcher_gone) count_the_lost(going);
}

std::vector<LauncherEvent> ExternalLauncher::poll(double wait_s) {
  const double until = monotonic_s() + std::max(wait_s, 0.0);
  for (;;) {
    for (auto at = going_.begin(); at != going_.end();) {
      look(at->second);
      // A launcher that has not ended yet may still run processes of ours: it is waited for.
      if (at->second.launcher >= 0 || !all_ended(at->second)) {
        ++at;
        continue;
      }
      desk_.forget(at->first);
      at = going_.erase(at);
    }
    for (LauncherEvent& event : desk_.look(monotonic_s())) events_.push_back(std::move(event));
    const double left_ms = 1000 * (until - monotonic_s());
    if (!events_.empty() || left_ms <= 0) break;
    ::poll(nullptr, 0, std::clamp(static_cast<int>(left_ms) + 1, 1, kExitsEvery_ms));
  }
  std::vector<LauncherEvent> events(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
  events_.clear();
  return events;
}

void ExternalLauncher::shut_down(double deadline_s) {
  const double deadline = monotonic_s() + deadline_s;
  for (auto& [run, going] : going_) {
    if (!all_ended(going)) write_stop(going.what.dir, {++going.wishes, SIGKILL});
  }
  // Those whose ranks are at their end are about to end too.
  const double patience = std::min(deadline_s / 2, kKillAfter_s), term_at = monotonic_s() + patience;
  bool told = false;
  const auto any_left = [this] {
    return std::any_of(going_.begin(), going_.end(), [](const auto& each) { return each.second.launcher >= 0; });
  };
  while (any_left() && monotonic_s() < deadline) {
    const double now = monotonic_s();
    for (auto& [run, going] : going_) {
      if (!told && now >= term_at && going.launcher >= 0) ::killpg(going.launcher, SIGTERM);
      look_at_launcher(going, now);
    }
    told = told || now >= term_at;
    if (any_left()) ::poll(nullptr, 0, kExitsEvery_ms);
  }
  for (auto& [run, going] : going_) {
    if (going.launcher < 0) continue;
    ::killpg(going.launcher, SIGKILL);
    while (::waitpid(going.launcher, nullptr, 0) < 0 && errno == EINTR) {
    }
    going.launcher = -1;
  }
  for (const auto& [run, going] : going_) desk_.forget(run);
  going_.clear();
}

}  // namespace lockstep
