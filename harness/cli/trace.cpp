#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <ostream>
#include <sstream>

#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/run/libraries.h"
#include "harness/run/probe.h"
#include "reports/check.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// What the probe leaves in a folder: rank-3.trace, rank-3.probe.json, rank-3.rows.json.
bool is_probes_own(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view kRank = "rank-";
  if (!name.starts_with(kRank)) return false;
  const std::size_t end = name.find_first_not_of("0123456789", kRank.size());
  if (end == kRank.size() || end == std::string::npos) return false;
  const std::string_view rest = std::string_view(name).substr(end);
  return rest == ".trace" || rest == ".probe.json" || rest == ".rows.json";
}

/// Those in the folder, and in its further trainings.
std::vector<fs::path> left_before(const fs::path& out) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(out, error), end; !error && at != end; at.increment(error)) {
    if (is_probes_own(at->path())) found.push_back(at->path());
    if (at->path().filename().string().find_first_not_of("0123456789") != std::string::npos || !fs::is_directory(at->path(), error)) continue;
    for (fs::path& each : left_before(at->path())) found.push_back(std::move(each));
  }
  std::ranges::sort(found);
  return found;
}

/// The processes of `lockstep trace` that record one run, for each of its nodes or tasks: the first makes room, and the
/// last says what was recorded.
class Together {
 public:
  Together(const fs::path& out, bool overwrite) : path_(out / ".tracing") {
    std::error_code error;
    if (fs::exists(out, error) && !fs::is_directory(out, error))
      throw ConfigError("--out " + out.string() + ": is no folder");
    if (fs::create_directories(out, error); error)
      throw MachineError(out.string() + ": cannot be created: " + error.message());
    lock_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    const bool later = ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (later) ::flock(lock_, LOCK_SH);
    if (!later || ::lseek(lock_, 0, SEEK_END) == 0) {  // or the first was refused
      (void)!::ftruncate(lock_, 0);
      make_room(out, overwrite);
      (void)!::write(lock_, "\n", 1);
    }
    ::flock(lock_, LOCK_SH);
  }
  ~Together() { ::close(lock_); }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  /// Of one of them. Where the file system has no locks each is the last.
  bool is_last() {
    ::flock(lock_, LOCK_UN);
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return ::unlink(path_.c_str()) == 0;
  }

 private:
  static void make_room(const fs::path& out, bool overwrite) {
    std::error_code error;
    if (fs::exists(out / "run.json", error))
      throw ConfigError("--out " + out.string() + ": is a run of a matrix (it has a run.json); choose another folder");
    const std::vector<fs::path> there = left_before(out);
    if (!there.empty() && !overwrite) {
      throw ConfigError(fmt::format(
          "--out {}: holds {} of an earlier run, the first {}; choose another folder, or --overwrite to remove them",
          out.string(), counted(static_cast<int64_t>(there.size()), "file"), there.front().filename().string()));
    }
    for (const fs::path& path : there) {
      if (!fs::remove(path, error) && error)
        throw MachineError(path.string() + ": cannot be removed: " + error.message());
    }
  }

  fs::path path_;
  int lock_;
};

void require_traces(const std::string& folder) {
  std::error_code error;
  if (fs::exists(fs::path(folder) / "rank-0.trace", error)) return;
  throw ConfigError("--led-by " + folder + ": has no rank-0.trace; name the folder of the run that this one should equal");
}

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// How a command ended.
struct CommandEnd {
  int code = 0, signal = 0;
  int asked_by = 0;  ///< the first signal that asked it to end, and came through lockstep or its terminal
};

/// Runs the command in the foreground, with this process's streams, until it ends.
CommandEnd run_in_foreground(std::vector<std::string> words, std::vector<std::string> variables) {
  sigset_t watched, before;
  sigemptyset(&watched);
  for (const int number : kPassedOn) sigaddset(&watched, number);
  sigaddset(&watched, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &before);
  sigset_t ordinary;
  sigemptyset(&ordinary);
  sigaddset(&ordinary, SIGXFSZ);
  ::posix_spawnattr_setsigdefault(&attributes, &ordinary);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, arguments.front(), nullptr, &attributes, arguments.data(), environment.data());
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    throw ConfigError(fmt::format("{}: cannot be started: {}", words.front(), std::strerror(error)));
  }
  CommandEnd end;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    siginfo_t what;
    const int number = ::sigwaitinfo(&watched, &what);
    if (number <= 0 || number == SIGCHLD) continue;
    if (end.asked_by == 0 && number != SIGUSR1 && number != SIGUSR2) end.asked_by = number;
    // What a terminal sends has reached the command, too.
    if (what.si_code != SI_KERNEL) ::kill(child, number);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return end;
}

std::string size_text(uint64_t bytes) {
  constexpr double kKilo = 1000;
  const auto size = static_cast<double>(bytes);
  if (size < kKilo * kKilo) return fmt::format("{:.0f} kB", std::max(1.0, size / kKilo));
  return size < kKilo * kKilo * kKilo ? fmt::format("{:.1f} MB", size / kKilo / kKilo) : fmt::format("{:.2f} GB", size / kKilo / kKilo / kKilo);
}

struct Recorded {
  std::vector<RecordedRank> ranks;
  int64_t steps() const {
    const auto least = std::ranges::min_element(ranks, {}, &RecordedRank::steps);
    return least == ranks.end() ? 0 : least->steps;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const RecordedRank& rank : ranks) sum += rank.bytes;
    return sum;
  }
};

Recorded read_recorded(const std::string& out) {
  Recorded recorded;
  for (int rank = 0, world = 1; rank < world; ++rank) {
    recorded.ranks.push_back(read_recorded_rank(out, rank));
    world = std::max(world, recorded.ranks.back().world_size);
  }
  return recorded;
}

/// What is wrong with the record of each rank, a line each.
std::vector<std::string> problems_of(const Recorded& recorded) {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < recorded.ranks.size(); ++r) {
    const RecordedRank& rank = recorded.ranks[r];
    if (!rank.there)
      lines.push_back(fmt::format("rank {} of {} left no trace", r, recorded.ranks.size()));
    else if (!rank.problem.empty())
      lines.push_back(rank.problem);
    else if (!rank.whole)
      lines.push_back(rank.last_step < 0 ? fmt::format("rank {}: cut short before its first step was whole", r)
                                         : fmt::format("rank {}: cut short after step {}", r, rank.last_step));
  }
  return lines;
}

void say_account(const std::string& out, std::ostream& err) {
  const RunAccount account = read_run_account(out);
  if (!account.ended.empty()) err << clean_line("  " + account.ended) << "\n";
  if (!account.unrecorded.empty()) err << clean_line("  not recorded: " + account.unrecorded) << "\n";
  for (const std::string& folder : account.also) err << clean_line("  a further training of the run is recorded in " + folder) << "\n";
}

void say_recorded(const TraceOptions& options, const std::string& out, const Recorded& recorded, std::ostream& err) {
  const ProbeReport report = read_probe_report(out, 0);
  err << fmt::format("recorded in {}: {}, {}, level {}, {}\n", shell_quoted(options.out),
                     counted(static_cast<int64_t>(recorded.ranks.size()), "rank"), counted(recorded.steps(), "step"),
                     recorded.ranks.front().level, size_text(recorded.bytes()));
  say_account(out, err);
  if (!report.problem.empty()) err << clean_line(fmt::format("  rank-0.probe.json: {}", report.problem)) << "\n";
  if (report.there && report.problem.empty()) {
    err << clean_line(fmt::format("  tier {} ({}torch {}); can be judged: {}", report.tier, report.wrapper == "none" ? "" : report.wrapper + ", ",
                                  report.torch, judged_with(report)))
        << "\n";
    if (const std::string missing = not_seen(report); !missing.empty()) err << "  not seen: " << missing << "\n";
    if (report.seconds > 0) err << fmt::format("  the probe took {:.1f} of {:.1f} s\n", report.probe_seconds, report.seconds);
    for (const std::string& note : report.notes) err << "  note: " << clean_line(note) << "\n";
  }
  for (const std::string& line : problems_of(recorded)) err << "  " << clean_line(line) << "\n";
  err << fmt::format("next: lockstep compare {} {}\n", options.led_by.empty() ? "REF" : shell_quoted(options.led_by), shell_quoted(options.out));
  if (options.led_by.empty()) err << "  REF: the folder of the run that this one should equal, recorded in the same way\n";
}

constexpr const char* kNothing =
    "the command ended well, and the probe recorded nothing. Check, in this order:\n"
    "  1. Does the command start Python with -S, -I or -E, or set PYTHONPATH itself? Then the probe is not loaded: add\n"
    "     `import lockstep_probe` to the script.\n"
    "  2. Does it run elsewhere (a container, ssh, a batch job)? Then variables and folders do not reach it.\n"
    "  3. Does it take a training step with a torch.optim optimizer? The probe records at optimizer.step().\n"
    "  4. Does it use torch at all, in the Python that it starts?\n";

}  // namespace

int trace_command(const TraceOptions& options, const Console& console) {
  const std::string probe = find_probe();
  const fs::path out = fs::absolute(options.out).lexically_normal();
  if (!options.led_by.empty()) require_traces(options.led_by);
  Together together(options.out, options.overwrite);
  ProbeSettings settings;
  settings.trace = out.string();
  settings.level = options.level;
  settings.snapshots = options.snapshots;
  settings.every = options.every;
  if (!options.led_by.empty()) settings.led_by = fs::absolute(options.led_by).lexically_normal().string();
  settings.steps = options.steps;
  settings.float64 = options.float64;
  settings.no_dropout = options.no_dropout;
  const CommandEnd end = run_in_foreground(options.command, environment_with(probe_variables(probe, settings)));
  const bool failed = end.code != 0 || end.signal != 0;
  if (!together.is_last() && !failed) return kExitAsExpected;
  const Recorded recorded = read_recorded(out.string());
  const bool any = std::ranges::any_of(recorded.ranks, &RecordedRank::there);
  std::ostringstream said;
  if (any) say_recorded(options, out.string(), recorded, said);
  else say_account(out.string(), said);
  (any ? console.news() : console.err) << "\n" << said.str();
  print_document(document_of(said.str()), "", "", options.outputs, console);
  write_tools({{options.out, options.out}}, options.outputs.tools, console);
  if (failed) {
    console.err << (end.signal != 0 ? fmt::format("the command was ended by signal {} (SIG{})", end.signal, ::sigabbrev_np(end.signal))
                                    : fmt::format("the command ended with status {}", end.code))
                << (any ? "; what was recorded up to there is readable\n" : ", and recorded nothing\n");
    return end.asked_by != 0 ? kExitInterrupted : kExitDied;
  }
  if (any && recorded.steps() > 0) return kExitAsExpected;
  console.err << kNothing;
  return kExitMachine;
}

}  // namespace lockstep
