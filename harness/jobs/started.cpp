#include "harness/jobs/started.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/jobs/parent.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/canonical.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/launcher.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/launchers/slurm/agents.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"
#include "harness/run/watch.h"

namespace lockstep {
namespace {

constexpr double kMeetWithin_s = 120, kReachRankZero_s = 20;
/// Handed on to the rank as they are.
constexpr std::array kHandedOn = {SIGTERM, SIGUSR1, SIGUSR2};
constexpr std::string_view kPreparedFor = "--prepared=";

struct Arguments {
  std::string folder;
  std::vector<std::string> of_rank_environment;
  bool prepared = false, mixed = false;
  std::string attempt;  ///< Watcher::attempt, for which it was started
  double within_s = kMeetWithin_s;
  std::string problem;
};

Arguments words_of(const std::vector<std::string>& arguments) {
  static const std::vector<std::string> kWithValue = {"--rank", "--world", "--local-rank", "--rendezvous", "--environment", "--contract"};
  Arguments words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--prepared" || word.starts_with(kPreparedFor)) {
      words.prepared = true;
      if (word.starts_with(kPreparedFor)) words.attempt = word.substr(kPreparedFor.size());
    } else if (word == "--mixed") {
      words.mixed = true;
    } else if (word == "--within" && i + 1 < arguments.size()) {
      words.within_s = std::strtod(arguments[++i].c_str(), nullptr);
      if (!(words.within_s > 0)) words.problem = "--within takes seconds, more than 0";
    } else if (std::find(kWithValue.begin(), kWithValue.end(), word) != kWithValue.end()) {
      words.of_rank_environment.push_back(word);
      if (i + 1 < arguments.size()) words.of_rank_environment.push_back(arguments[++i]);
    } else if (!word.starts_with("-") && words.folder.empty()) {
      words.folder = word;
    } else {
      words.problem = fmt::format("'{}' is no option of run; known are --prepared, --mixed, --within, {}", word,
                                  fmt::join(kWithValue, ", "));
    }
  }
  if (words.folder.empty() && words.problem.empty()) words.problem = "run needs the folder of a run, with its run.json";
  return words;
}

/// What was wrong, and the exit status that says so.
struct Refusal {
  int status;
  std::string message;
};

struct Run {
  RunConfig config;
  std::string hash;
};

Run read_run(const Arguments& words) {
  const std::string path = words.folder + "/run.json";
  std::string problem;
  const auto run = read_sealed(path, problem);
  if (!run) throw Refusal{kExitUsage, fmt::format("{} {}; `lockstep plan CONFIG --prepare` writes it", path, problem)};
  if (::access(words.folder.c_str(), W_OK | X_OK) != 0)
    throw Refusal{kExitUsage, fmt::format("{}: {}; ranks write their results there: give their user the right to", words.folder,
                                          std::strerror(errno))};
  std::error_code error;
  if (!words.prepared && std::filesystem::exists(words.folder + "/done", error))
    throw Refusal{kExitUsage, fmt::format("{}: this run is finished; copy its run.json into a folder of its own to run it again",
                                          words.folder)};
  RunConfig config = run_config_from_json(JsonFields(*run, path).at<nlohmann::json>("config").dump(), path);
  std::string hash = config_hash(config);
  return {std::move(config), std::move(hash)};
}

RankEnvironment rank_environment_of(const Arguments& words, int processes) {
  const Resolution found = resolve_rank_environment(current_environment(), words.of_rank_environment);
  for (const std::string& note : found.notes) std::fprintf(stderr, "lockstep-rank: %s\n", note.c_str());
  if (!found.problems.empty()) {
    throw Refusal{kExitUsage, fmt::format("which rank is this? {}\n{}say --environment NAME ({}) to follow one alone, or unset the others",
                                          fmt::join(found.problems, "; "), rank_environment_table(found),
                                          fmt::join(rank_environment_names(), ", "))};
  }
  if (found.chosen) {
    if (found.chosen->world != processes) {
      throw Refusal{kExitUsage, fmt::format("{} brings {} processes and this run wants {}: start {}, or take another layout",
                                            found.chosen->name, found.chosen->world, processes, processes)};
    }
    return *found.chosen;
  }
  if (processes != 1)
    throw Refusal{kExitUsage, fmt::format("this run wants {} processes, and nobody says which of them this is: start it by torchrun, "
                                          "srun or mpirun, or say --rank R --world {}", processes, processes)};
  RankEnvironment alone;
  alone.name = "alone";
  alone.rank = alone.local_rank = alone.node = 0;
  alone.world = alone.local_world = 1;
  return alone;
}

/// The thread counts that libraries read while they load: a launcher that knows nothing of them leaves the machine's.
void pin_threads() {
  const std::string one = std::to_string(kThreadsPerRank);
  bool pinned = true;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const char* value = std::getenv(name);
    pinned = pinned && value != nullptr && one == value;
    ::setenv(name, one.c_str(), 1);
  }
  if (pinned || std::getenv("LOCKSTEP_PINNED") != nullptr) return;
  ::setenv("LOCKSTEP_PINNED", "1", 1);
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) return;
  const std::vector<char*> arguments = pointers_to(words);
  ::execv("/proc/self/exe", arguments.data());
}

void remove_own_files(const std::string& folder, int rank) {
  for (const std::string& path : {rank_result_path(folder, rank), exit_file(folder, rank)}) {
    if (const auto error = real_files().remove(path); error && error != std::errc::no_such_file_or_directory)
      throw Refusal{kExitUsage, path + ": cannot remove what an earlier attempt left: " + error.message()};
  }
}

/// Of this process: over an exec, too.
double age_s() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const uint64_t ticks = process_state(::getpid()).started;
  const double started = static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return std::max(0.0, static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started);
}

double seconds_since_1970() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// By whom this process was started. Some launchers leave their processes behind when they are killed, on some hosts unseen; such a
/// process must not touch the files of the next attempt.
class Origin {
 public:
  Origin(std::string folder, std::string attempt) : folder_(std::move(folder)), attempt_(std::move(attempt)) {}

  bool launcher_is_gone() const { return ::getppid() != launcher_; }
  /// Lockstep has started the run again without this process.
  bool attempt_is_over() const {
    if (attempt_.empty()) return false;
    const std::optional<Watcher> watcher = read_watcher(folder_);
    return watcher && !watcher->attempt.empty() && watcher->attempt != attempt_;
  }
  /// For a process without a rank yet. Throws LeftBehind.
  void require_wanted() const {
    const bool ended = !attempt_.empty() && read_stop(folder_).signal == SIGKILL;
    if (launcher_is_gone() || ended || attempt_is_over()) throw LeftBehind();
  }
  struct LeftBehind : std::runtime_error {
    LeftBehind() : std::runtime_error("the launcher that started this process is gone, or the run was ended; it leaves") {}
  };

 private:
  std::string folder_, attempt_;
  pid_t launcher_ = ::getppid();
};

class Supervisor {
 public:
  /// `mine`: as it stands after the meeting.
  Supervisor(std::string folder, Arrival mine, std::string start, const Origin& origin)
      : folder_(std::move(folder)), mine_(std::move(mine)), start_(std::move(start)), origin_(origin) {
    sigemptyset(&awaited_);
    sigaddset(&awaited_, SIGCHLD);
    for (const int signal : kHandedOn) sigaddset(&awaited_, signal);
    ::sigprocmask(SIG_BLOCK, &awaited_, nullptr);
  }

  int watch(const std::function<int(const RankTask&)>& run_rank, RankTask task, HeartbeatLine& line) {
    task.heartbeats = line.heartbeats();
    task.watched = line.tracer() > 0;
    pid_ = fork_guarded(task, run_rank, line.tracer());
    if (pid_ < 0) throw MachineError(std::string("fork: ") + std::strerror(errno));
    line.started(pid_);
    note_process(folder_, mine_, pid_);
    int status = 0;
    while (!reaped(status)) attend(line);
    line.ended();
    RankExit exit{start_, mine_.rank, 0, 0, told_, orphaned_, seconds_since_1970(), mine_.attempt};
    if (WIFSIGNALED(status))
      exit.signal = WTERMSIG(status);
    else
      exit.code = WEXITSTATUS(status);
    if (!origin_.attempt_is_over()) write_exit(folder_, exit);
    return exit.signal != 0 ? 128 + exit.signal : exit.code;
  }

 private:
  bool reaped(int& status) const { return ::waitpid(pid_, &status, WNOHANG) == pid_; }

  void attend(HeartbeatLine& line) {
    const timespec wait{0, 1'000'000L * line.patience_ms()};
    const int came = ::sigtimedwait(&awaited_, nullptr, &wait);
    if (std::find(kHandedOn.begin(), kHandedOn.end(), came) != kHandedOn.end()) hand_on(came);
    line.look();
    if (const StopWish wish = read_stop(folder_); wish.number > heeded_) {
      heeded_ = wish.number;
      hand_on(wish.signal);
    }
    if (!origin_.launcher_is_gone() && !origin_.attempt_is_over()) return;
    orphaned_ = true;
    hand_on(SIGKILL);
  }

  void hand_on(int signal) {
    told_ = true;
    ::kill(pid_, signal);
  }

  std::string folder_;
  Arrival mine_;
  std::string start_;
  const Origin& origin_;
  pid_t pid_ = -1;
  sigset_t awaited_{};
  int heeded_ = 0;
  bool told_ = false, orphaned_ = false;
};

/// What a rank that never began has to say.
[[noreturn]] void leave(const Arguments& words, const Run& run, const Arrival& mine, const Refusal& refusal) {
  RankResult result;
  result.rank = mine.rank;
  result.world_size = run.config.layout.world_size;
  result.config_hash = run.hash;
  result.status = "failed";
  result.phase = kNotBegun;
  result.error = refusal.message;
  write_rank_result(rank_result_path(words.folder, mine.rank), result);
  write_exit(words.folder, {mine.nonce, mine.rank, refusal.status, 0, false, false, seconds_since_1970(), mine.attempt});
  throw Refusal(refusal);
}

/// With rank 0's answer, for this rank.
std::optional<Refusal> what_is_wrong(const Met& answer, const Arrival& mine, const Arguments& words) {
  if (const std::string differs = difference_of_identity(answer.ranks.front(), mine); !differs.empty()) {
    if (!words.mixed) return Refusal{kExitUsage, differs};
    std::fprintf(stderr, "lockstep-rank: %s\n", differs.c_str());
  }
  const std::string problem = answer.tcp ? unreachable_text(answer, mine, std::min(kReachRankZero_s, words.within_s / 2)) : "";
  return problem.empty() ? std::nullopt : std::optional(Refusal{kExitHung, problem});
}

/// Where the launcher gave each rank one GPU of its own, that is the first of those that it sees.
int local_rank_of(const RankEnvironment& rank_environment, const Met& met) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && *visible != '\0' && std::strchr(visible, ',') == nullptr) return 0;
  if (rank_environment.local_rank >= 0) return rank_environment.local_rank;
  return met.one_host ? std::max(rank_environment.rank, 0) : 0;
}

RankTask task_of(const Arguments& words, const Met& met, const Arrival& mine, bool one_process) {
  RankTask task;
  task.run_dir = words.folder;
  task.rank = one_process ? -1 : mine.rank;
  task.store = "store-" + met.start;
  if (!met.one_host) task.address = mine.address;
  if (met.tcp) {
    task.meet.host = met.host;
    task.meet.port = met.port;
    task.meet.listening = met.listening;
  }
  return task;
}

int run_as(const Arguments& words, const Run& run, const RankEnvironment& rank_environment, const std::function<int(const RankTask&)>& run_rank) {
  const bool one_process = processes_of(run.config) == 1;
  const Origin origin(words.folder, words.attempt);
  const double begun = monotonic_s() - age_s();
  Arrival mine = introduce(rank_environment);
  mine.attempt = words.attempt;
  mine.build = hash_of_file("/proc/self/exe");
  mine.isa = instruction_sets();
  try {
    origin.require_wanted();
    remove_own_files(words.folder, mine.rank);
    if (mine.rank == 0 && !words.prepared) {
      (void)real_files().remove(stop_file(words.folder));
      (void)HeartbeatFile::create(words.folder + "/heartbeat", run.config.layout.world_size);
    }
    const char* store = std::getenv("LOCKSTEP_STORE");
    std::optional<Refusal> refused;
    const auto examine = [&](const Met& answer) {
      refused = what_is_wrong(answer, mine, words);
      return refused ? refused->message : "";
    };
    const double within_s = std::max(0.0, begun + words.within_s - monotonic_s());
    const Met met = meet(words.folder, mine, store == nullptr ? "" : store, within_s, examine, [&] { origin.require_wanted(); });
    if (refused) throw Refusal(*refused);
    RankTask task = task_of(words, met, mine, one_process);
    task.local_rank = local_rank_of(rank_environment, met);
    HeartbeatLine line(words.folder, mine, task.rank, run.config.layout.world_size);
    return Supervisor(words.folder, met.ranks.at(static_cast<std::size_t>(mine.rank)), met.start, origin).watch(run_rank, task, line);
  } catch (const RendezvousError& error) {
    leave(words, run, mine, {kExitHung, error.what()});
  } catch (const Refusal& refusal) {
    leave(words, run, mine, refusal);
  }
}

}  // namespace

/// `arguments`, after run: the run's folder, then any of
///
///   --prepared[=ATTEMPT]  lockstep has made the folder for this start (Watcher::attempt); else rank 0 makes what is missing in it
///   --mixed               ranks of different builds or processors are fine
///   --within SECONDS      from the start of this process, for all ranks to be there and to answer; by default 120
///   and those of resolve_rank_environment (harness/run/rank_environment.h)
///
/// Returns the process's exit status: the rank's own (128 + the signal that ended it); 2 if it cannot be said which rank
/// this is, or the run wants another world; 4 if the others do not come or cannot be reached.
static int started_rank_main(const std::vector<std::string>& arguments, const std::function<int(const RankTask&)>& run_rank) {
  try {
    const Arguments words = words_of(arguments);
    if (!words.problem.empty()) throw Refusal{kExitUsage, words.problem};
    pin_threads();
    const Run run = read_run(words);
    return run_as(words, run, rank_environment_of(words, processes_of(run.config)), run_rank);
  } catch (const Refusal& refusal) {
    std::fprintf(stderr, "lockstep-rank: %s\n", refusal.message.c_str());
    return refusal.status;
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "lockstep-rank: %s\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-rank: %s\n", error.what());
    return kExitMachine;
  }
}

namespace {

int connected_to(const std::string& host, const std::string& port) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found)) {
    std::fprintf(stderr, "lockstep-rank: %s: %s\n", host.c_str(), ::gai_strerror(error));
    return -1;
  }
  const int there = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = there >= 0 && ::connect(there, found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  if (connected) return there;
  std::fprintf(stderr, "lockstep-rank: cannot reach lockstep at %s:%s: %s; set LOCKSTEP_ADDRESS where it runs to an address that "
               "this node sees\n", host.c_str(), port.c_str(), std::strerror(errno));
  ::close(there);
  return -1;
}

/// lockstep-rank --agent HOST:PORT FILE: connects, says in one line who it is (harness/run/launchers/slurm/agents.h), with the key in the file, and serves
/// commands as serve_ranks does. Returns the exit status: 4 if nobody is there to connect to.
int agent_main(const std::string& place, const std::string& key_file, const RankProgram& program) {
  const std::size_t colon = place.rfind(':');
  const std::string key = key_in_file(key_file);
  if (colon == std::string::npos || key.empty()) {
    std::fprintf(stderr, "lockstep-rank: --agent takes HOST:PORT FILE, and the file holds a key that this user may read: %s\n", key_file.c_str());
    return kExitUsage;
  }
  const int there = connected_to(place.substr(0, colon), place.substr(colon + 1));
  if (there < 0) return kExitHung;
  set_side_channel(there);
  const std::string hello = to_line(introduce_agent(key));
  if (::send(there, hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) return kExitHung;
  return serve_ranks(there, program);
}

}  // namespace

int rank_program_main(int argc, char** argv, const char* description, const RankProgram& program) {
  open_standard_streams();
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("%s\n", description);
    return 0;
  }
  if (const std::string problem = problem_of_surroundings(); !problem.empty()) {
    std::fprintf(stderr, "lockstep-rank: %s\n", problem.c_str());
    return kExitMachine;
  }
  if ((argc == 7 || argc == 8) && std::string_view(argv[1]) == kRankOption) {
    RankTask task{argv[3], std::atoi(argv[2]), std::strtod(argv[4], nullptr), kNotices};
    task.address = argv[5];
    task.heartbeats = argv[6];
    task.watched = task.heartbeats == kHeartbeatFile;
    if (argc == 8) task.local_rank = std::atoi(argv[7]);
    ::_exit(run_guarded(program.run, task));
  }
  if (argc >= 2 && (std::string_view(argv[1]) == "run" || std::string_view(argv[1]) == "--run")) return started_rank_main({argv + 2, argv + argc}, program.run);
  if (argc == 4 && std::string_view(argv[1]) == "--agent") {
    const sigset_t held = signals_of_a_job();
    ::sigprocmask(SIG_BLOCK, &held, nullptr);
    return agent_main(argv[2], argv[3], program);
  }
  char* end = nullptr;
  const long socket =
      argc == 3 && std::string_view(argv[1]) == "--socket" ? std::strtol(argv[2], &end, 10) : -1;
  if (socket < 0 || end == argv[2] || *end != '\0') {
    std::fprintf(stderr, "%s starts the ranks of lockstep and is started by it, or by torchrun, srun or mpirun: %s run FOLDER; see "
                 "lockstep --help\n", argv[0], argv[0]);
    return kExitUsage;
  }
  ::fcntl(static_cast<int>(socket), F_SETFD, FD_CLOEXEC);
  return serve_ranks(static_cast<int>(socket), program);
}

}  // namespace lockstep
