#include "harness/run/launchers/external/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"

namespace lockstep {
namespace {

constexpr double kMeetWithin_s = 150;  ///< longer than ranks themselves wait for each other
constexpr double kForkWithin_s = 30;   ///< from the arrival of the last rank, which all have yet to answer
constexpr double kEndAfter_s = 1, kKillAfter_s = 3;
/// From the end of a rank's processes to the loss of the rank, whose exit file may be on its way.
constexpr double kLastFile_s = 0.1;
/// For ranks on other hosts whose launcher is gone to see that they shall end, and to end.
constexpr double kOrphans_s = 5;
constexpr std::size_t kLauncherLines = 3;

/// Of a rank on this host: neither the rank's process nor that which had forked it is there.
bool are_gone(const Arrival& there) {
  return is_gone({there.pid, 0, there.pid_started}) && (there.process <= 0 || is_gone({there.process, 0, there.process_started}));
}

std::string launcher_log(const std::string& dir) { return dir + "/launcher.log"; }

}  // namespace

pid_t start_command(std::vector<std::string> words, const std::string& log_path) {
  std::vector<std::string> variables = rank_environment();
  std::erase_if(variables, [](const std::string& entry) { return is_rank_variable(entry.substr(0, entry.find('='))); });
  return start_program({std::move(words), std::move(variables), log_path});
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

/// Of an attempt whose ranks have all ended, so that the run is started again: its launcher may not have noticed yet.
void ExternalLauncher::end_earlier_attempt(const std::string& run) {
  const auto found = going_.find(run);
  if (found == going_.end()) return;
  Going& earlier = found->second;
  LOCKSTEP_CHECK(all_ended(earlier), "a run that is going cannot be started: " + run);
  for (const double until = monotonic_s() + kEndAfter_s; earlier.launcher >= 0 && monotonic_s() < until; ::poll(nullptr, 0, kLookEvery_ms))
    look_at_launcher(earlier, monotonic_s());
  kill_launcher(earlier);
  desk_.forget(run);
  going_.erase(found);
}

void ExternalLauncher::kill_launcher(Going& going) {
  if (going.launcher < 0) return;
  ::killpg(going.launcher, SIGKILL);
  while (::waitpid(going.launcher, nullptr, 0) < 0 && errno == EINTR) {
  }
  going.launcher = -1;
}

void ExternalLauncher::start(const RankStart& what) {
  end_earlier_attempt(what.run);
  std::vector<std::string> words;
  const std::string attempt = desk_.expect(what);
  for (const std::string& word : command_) {
    const std::string of_attempt = replaced(word, "--prepared", "--prepared=" + attempt);
    words.push_back(replaced(replaced(replaced(of_attempt, "{ranks}", std::to_string(what.processes)), "{rank_program}", rank_program_),
                             "{run}", what.dir));
  }
  Going going;
  going.what = what;
  going.attempt = attempt;
  going.launcher = start_command(std::move(words), launcher_log(what.dir));
  going.started_at = monotonic_s();
  going.ended.assign(static_cast<std::size_t>(what.processes), false);
  going.gone_at.assign(going.ended.size(), 0);
  going_.emplace(what.run, std::move(going));
}

void ExternalLauncher::stop(const std::string& run, int signal) {
  const auto found = going_.find(run);
  if (found == going_.end()) return;
  Going& going = found->second;
  write_stop(going.what.dir, {++going.wishes, signal});
  if (signal != SIGKILL) return;
  going.killed = true;
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
    const auto exit = read_exit(going.what.dir, rank);
    if (exit && (exit->attempt.empty() || exit->attempt == going.attempt)) exits.push_back(*exit);
  }
  std::stable_sort(exits.begin(), exits.end(), [](const RankExit& a, const RankExit& b) { return a.ended_at < b.ended_at; });
  for (const RankExit& exit : exits) {
    going.ended[static_cast<std::size_t>(exit.rank)] = true;
    LauncherEvent event = exit_event(going.what, exit.rank, exit.code, exit.signal);
    event.told = exit.told;
    // Its launcher left it behind, or was gone when lockstep ended what was left.
    if (exit.told && exit.signal == SIGKILL && !going.killed && (exit.orphaned || going.orphans_until > 0)) {
      event.lost = true;
      event.message = fmt::format("was left behind by its launcher, and ended (process {} on {}){}", arrival(going, exit.rank).pid,
                                  arrival(going, exit.rank).host, going.launcher < 0 ? ": " + how_launcher_ended(going) : "");
    }
    events_.push_back(std::move(event));
  }
}

/// What the rank's file says, if it is of this attempt; else an empty nonce.
Arrival ExternalLauncher::arrival(const Going& going, int rank) const {
  Arrival found = read_arrival(going.what.dir, rank);
  return found.attempt.empty() || found.attempt == going.attempt ? found : Arrival{};
}

/// The process of a rank, or that which had forked it, is killed together with the other: nobody is left to write how it ended.
void ExternalLauncher::look_at_processes(Going& going, double now) {
  if (!going.told_started) return;
  for (std::size_t r = 0; r < going.ended.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (going.ended[r]) continue;
    const Arrival there = arrival(going, rank);
    if (there.process <= 0 || !same_host(there, desk_.host()) || !are_gone(there)) continue;
    if (going.gone_at[r] == 0) going.gone_at[r] = now;
    if (now - going.gone_at[r] >= kLastFile_s) lose(going, rank, "there is no such process any more, and nobody said how it ended");
  }
}

void ExternalLauncher::lose(Going& going, int rank, const std::string& why) {
  going.ended[static_cast<std::size_t>(rank)] = true;
  const Arrival there = arrival(going, rank);
  LauncherEvent event = exit_event(going.what, rank, 1, going.killed ? SIGKILL : 0);
  event.lost = !going.killed;  // what lockstep itself has killed is not lost
  event.message = there.nonce.empty() ? "was never there: " + why : fmt::format("left no word of its end (process {} on {}): {}", there.pid, there.host, why);
  events_.push_back(std::move(event));
}

/// Ranks that a launcher has left behind would write into the folder of the next attempt.
void ExternalLauncher::end_orphans(Going& going, double now) {
  if (going.launcher >= 0 || all_ended(going)) return;
  if (going.orphans_until == 0) {
    going.orphans_until = now + kOrphans_s;
    write_stop(going.what.dir, {++going.wishes, SIGKILL});
  }
  for (int rank = 0; rank < going.what.processes && now < going.orphans_until; ++rank) {
    const Arrival there = arrival(going, rank);
    if (going.ended[static_cast<std::size_t>(rank)] || there.nonce.empty()) continue;
    if (!same_host(there, desk_.host()) || !are_gone(there)) return;
  }
  look_at_exits(going);  // what came since the last look
  count_the_lost(going);
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
  const auto silent = [&](int rank) {
    return arrival(going, rank).nonce.empty() &&
           ::access(rank_result_path(going.what.dir, rank).c_str(), F_OK) != 0;
  };
  // A shell's, or a launcher's own, status of what a signal has ended.
  const bool by_signal = WIFSIGNALED(going.launcher_status) || WEXITSTATUS(going.launcher_status) > 128;
  bool nobody = !going.killed && !by_signal;
  for (int rank = 0; rank < going.what.processes; ++rank) nobody = nobody && silent(rank);
  if (nobody) {
    // It would be the same with the next run.
    events_.push_back({.kind = LauncherEvent::Kind::refused, .run = going.what.run, .message = how_launcher_ended(going)});
    going.ended.assign(going.ended.size(), true);
    return;
  }
  for (int rank = 0; rank < going.what.processes; ++rank) {
    if (!going.ended[static_cast<std::size_t>(rank)]) lose(going, rank, how_launcher_ended(going));
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
  LauncherEvent event{.kind = LauncherEvent::Kind::started, .run = going.what.run};
  bool all_forked = true;
  for (int rank = 0; rank < going.what.processes; ++rank) {
    const Arrival there = arrival(going, rank);
    if (there.nonce.empty()) return;
    if (!same_host(there, desk_.host())) desk_.open_to_hosts();
    all_forked = all_forked && (there.process > 0 || ::access(rank_result_path(going.what.dir, rank).c_str(), F_OK) == 0);
    // A process's number means nothing on another host.
    const bool here = same_host(there, desk_.host());
    event.pids.push_back(here && there.process > 0 ? there.process : -1);
    event.places.push_back(here ? "" : fmt::format("host {} (process {})", there.host, there.process));
  }
  if (going.there_at == 0) going.there_at = now;
  if (!all_forked && now - going.there_at < kForkWithin_s) return;
  going.told_started = true;
  events_.push_back(std::move(event));
}

void ExternalLauncher::look(Going& going) {
  look_at_launcher(going, monotonic_s());
  look_at_arrivals(going, monotonic_s());
  look_at_exits(going);
  look_at_processes(going, monotonic_s());
  end_orphans(going, monotonic_s());
}

std::vector<LauncherEvent> ExternalLauncher::poll(double wait_s) {
  return look_until(wait_s, [this] {
    for (auto& [run, going] : going_) look(going);
    // A launcher that has not ended yet may still run processes of ours: it is waited for.
    std::erase_if(going_, [this](const auto& each) {
      const bool over = each.second.launcher < 0 && all_ended(each.second);
      if (over) desk_.forget(each.first);
      return over;
    });
    for (LauncherEvent& event : desk_.look(monotonic_s())) events_.push_back(std::move(event));
  });
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
    if (any_left()) ::poll(nullptr, 0, kLookEvery_ms);
  }
  for (auto& [run, going] : going_) kill_launcher(going);
  for (const auto& [run, going] : going_) desk_.forget(run);
  going_.clear();
}

}  // namespace lockstep
