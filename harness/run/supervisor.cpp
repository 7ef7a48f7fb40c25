#include "harness/run/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "harness/base/files.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/reader.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/process_state.h"
#include "harness/run/run_folder.h"

namespace lockstep {

/// A rank that ended well after fewer steps than `waiting` had made when it stood still, or lost its peers (`why`): that one waits for it.
static std::optional<RankFailure> left_early(const RunEnds& ends, int waiting, const std::string& why);
namespace {

constexpr std::size_t kLastLines = 20;

/// What one rank, or the process that was all ranks, has to say for itself.
struct Finding {
  bool failed = false;
  bool lost_peers = false;
  int rank = -1;
  FailureKind kind = FailureKind::died;
  std::string message, phase;
};

struct Testimony {
  enum class Kind { none, unreadable, finished, failed } kind = Kind::none;
  std::string message, phase;
  bool stopped = false;  ///< in order, after an agreed step, because a signal asked for it
};

Testimony testimony_of(const std::string& dir, int rank) {
  const std::string path = rank_result_path(dir, rank);
  if (::access(path.c_str(), F_OK) != 0) return {};
  try {
    const RankResult result = read_rank_result(path);
    if (result.status == "finished") return {Testimony::Kind::finished, {}, result.phase, false};
    const std::string message = result.error.empty() ? "ended as '" + result.status + "'" : result.error;
    return {Testimony::Kind::failed, message, result.phase, result.status == "interrupted"};
  } catch (const std::runtime_error& error) {
    // A rank may die while it writes: what it left is evidence against it, not a fault of ours.
    return {Testimony::Kind::unreadable, error.what(), {}, false};
  }
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("killed by signal {}", signal)
                         : fmt::format("killed by signal {} (SIG{})", signal, name);
}

Finding thrown(int rank, const Testimony& testimony) {
  const bool began = testimony.phase != kNotBegun;
  return {true, began && only_lost_its_peers(testimony.message), rank, testimony.stopped ? FailureKind::interrupted : FailureKind::threw,
          testimony.message, testimony.phase};
}

Finding judge_one(const RunEnds& ends, const RankEnd& end) {
  const Testimony testimony = testimony_of(ends.dir, end.rank);
  if (testimony.kind == Testimony::Kind::failed) return thrown(end.rank, testimony);
  if (!end.lost.empty()) return {true, false, end.rank, FailureKind::lost, end.lost, {}};
  if (end.signal != 0) return {true, end.killed_by_us, end.rank, FailureKind::died, signal_text(end.signal), {}};
  switch (testimony.kind) {
    case Testimony::Kind::unreadable:
      return {true, false, end.rank, FailureKind::died, testimony.message, {}};
    case Testimony::Kind::none:
      return {true, false, end.rank, FailureKind::died, fmt::format("exited with status {} without a result", end.code),
              {}};
    default:
      break;
  }
  if (end.code == 0) return {};
  return {true, false, end.rank, FailureKind::died, fmt::format("exited with status {} after it had finished", end.code),
          {}};
}

/// The process held every rank, so its end names none of them; their results do.
Finding judge_all(const RunEnds& ends, const RankEnd& end) {
  Finding first;
  int without_result = -1;
  for (int rank = 0; rank < ends.world_size; ++rank) {
    const Testimony testimony = testimony_of(ends.dir, rank);
    if (testimony.kind == Testimony::Kind::failed) {
      Finding finding = thrown(rank, testimony);
      if (!first.failed || (first.lost_peers && !finding.lost_peers)) first = finding;
    } else if (testimony.kind != Testimony::Kind::finished && without_result < 0) {
      without_result = rank;
    }
  }
  if (first.failed) return first;
  if (ends.world_size == 1) return judge_one(ends, {0, end.code, end.signal, end.killed_by_us, end.lost});
  if (!end.lost.empty()) return {true, false, -1, FailureKind::lost, end.lost, {}};
  const std::string all = fmt::format(" (the process that holds all {} ranks)", ends.world_size);
  if (end.signal != 0) return {true, end.killed_by_us, -1, FailureKind::died, signal_text(end.signal) + all, {}};
  if (without_result >= 0) {
    const auto message =
        fmt::format("exited with status {} without a result of rank {}", end.code, without_result);
    return {true, false, end.code == 0 ? without_result : -1, FailureKind::died, message, {}};
  }
  if (end.code == 0) return {};
  return {true, false, -1, FailureKind::died, fmt::format("exited with status {} after it had finished", end.code) + all,
          {}};
}

Finding judge_end(const RunEnds& ends, const RankEnd& end) {
  return end.rank < 0 ? judge_all(ends, end) : judge_one(ends, end);
}

/// Empty: it cannot be read, which whoever reads all of it says.
std::string hash_in_trace(const std::string& trace) {
  try {
    return TraceReader(trace).header().config_hash;
  } catch (const TraceError&) {
    return "";
  }
}

RankFailure failure_of(const RunEnds& ends, const Finding& finding) {
  RankFailure failure;
  failure.run = ends.run;
  failure.kind = finding.kind;
  failure.rank = finding.rank;
  failure.message = finding.message;
  const int heartbeat_rank = std::max(finding.rank, 0);
  // Of a rank that was refused before it began, it does not matter how far it came meanwhile.
  if (finding.phase != kNotBegun && ends.heartbeat != nullptr && heartbeat_rank < ends.heartbeat->world_size()) {
    failure.step = ends.heartbeat->step(heartbeat_rank);
    failure.operation = ends.heartbeat->operation(heartbeat_rank);
  }
  if (failure.operation.empty()) failure.operation = finding.phase;
  const std::string own_log = rank_log_path(ends.dir, finding.rank);
  const bool has_own_log = ::access(own_log.c_str(), F_OK) == 0;  // else all ranks share one
  failure.last_lines = last_lines(has_own_log ? own_log : rank_log_path(ends.dir, -1), kLastLines);
  return failure;
}

}  // namespace

bool only_lost_its_peers(const std::string& message) {
  // As Gloo, NCCL, the store, the kernel and our own collectives put it.
  constexpr std::array<std::string_view, 10> kSigns = {
      "closed by peer", "reset by peer", "broken pipe", "timed out",         "timeout",
      "another rank",   "lost its peer", "other rank",  "connection refused", "ncclremoteerror"};
  std::string lower(message);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](std::string_view sign) { return lower.find(sign) != std::string::npos; });
}

std::optional<RankFailure> name_failure(const RunEnds& ends) {
  // A rank that failed by itself takes the launcher with it, and with that others of whose end nothing is known.
  const auto weight = [](const Finding& finding) { return finding.lost_peers ? 0 : finding.kind == FailureKind::lost ? 1 : 2; };
  std::optional<Finding> first;
  for (const RankEnd& end : ends.ends) {
    const Finding finding = judge_end(ends, end);
    if (finding.failed && (!first || weight(finding) > weight(*first))) first = finding;
  }
  if (!first) return std::nullopt;
  if (first->lost_peers && first->rank >= 0) {
    if (auto left = left_early(ends, first->rank, first->message)) return left;
  }
  return failure_of(ends, *first);
}

std::optional<RankFailure> said_failure(const RunEnds& ends, int rank) {
  const Testimony testimony = testimony_of(ends.dir, rank);
  if (testimony.kind != Testimony::Kind::failed) return std::nullopt;
  const Finding finding = thrown(rank, testimony);
  return finding.lost_peers ? std::nullopt : std::optional(failure_of(ends, finding));
}

std::optional<RankFailure> left_early(const RunEnds& ends, int waiting, const std::string& why) {
  if (ends.heartbeat == nullptr || waiting < 0) return std::nullopt;
  const int64_t waits_at = ends.heartbeat->step(waiting);
  for (const RankEnd& end : ends.ends) {
    if (end.rank < 0 || end.rank == waiting || judge_end(ends, end).failed) continue;
    const int64_t done = read_rank_result(rank_result_path(ends.dir, end.rank)).steps_done;
    if (done > waits_at) continue;
    const std::string message = fmt::format("left with status 0 after {}, while rank {} is at step {} and waits for it; rank {}: {}",
                                            counted(done, "step"), waiting, waits_at, waiting, why);
    return failure_of(ends, {true, false, end.rank, FailureKind::died, message, {}});
  }
  return std::nullopt;
}

std::optional<RankFailure> unreadable_failure(const RunEnds& ends, const PlannedRun& run) {
  const auto unreadable = [&ends](int rank, const std::string& message) {
    RankFailure failure = failure_of(ends, {true, false, rank, FailureKind::unreadable, message, "write"});
    failure.last_lines.clear();  // of a rank that finished: they say nothing of its files
    return failure;
  };
  // A command's probe may have names of its own for runs; its ranks agree on one.
  std::string trace_hash = run.hash;
  for (int rank = 0; rank < ends.world_size; ++rank) {
    const std::string path = rank_result_path(ends.dir, rank);
    try {
      const RankResult result = read_rank_result(path);
      if (!result.config_hash.empty() && result.config_hash != run.hash) {
        return unreadable(rank, fmt::format("{} is of a run with the config hash {}, where {} was expected",
                                            path, result.config_hash, run.hash));
      }
    } catch (const std::runtime_error& error) {
      return unreadable(rank, error.what());
    }
    const std::string trace = fmt::format("{}/rank-{}.trace", ends.dir, rank);
    if (::access(trace.c_str(), F_OK) != 0) continue;  // none at the level `off`
    if (rank == 0 && spec_of(run.config).is_command()) trace_hash = hash_in_trace(trace);
    if (const std::string problem = trace_problem(trace, trace_hash, rank); !problem.empty()) {
      return unreadable(rank, problem);
    }
  }
  return std::nullopt;
}

bool all_lost_their_peers(const RunEnds& ends) {
  return std::all_of(ends.ends.begin(), ends.ends.end(), [&](const RankEnd& end) {
    const Finding finding = judge_end(ends, end);
    return !finding.failed || (finding.lost_peers && !left_early(ends, finding.rank, ""));
  });
}

/// The failure of a run that was killed because `rank` stood still ("hung") or computed for too long ("slow"); `message` says for how long.
static RankFailure stalled_failure(const RunEnds& ends, FailureKind kind, int rank, const std::string& message) {
  return failure_of(ends, {true, false, rank, kind, message, {}});
}

RankFailure interrupted_failure(const RunEnds& ends) {
  RankFailure failure =
      failure_of(ends, {true, false, -1, FailureKind::interrupted, "stopped on request; run again to resume", {}});
  failure.last_lines.clear();
  return failure;
}

bool disk_was_full(const RankFailure& failure) {
  const std::string_view sign = std::strerror(ENOSPC);
  const auto says_so = [&](const std::string& text) { return text.find(sign) != std::string::npos; };
  return says_so(failure.message) ||
         std::any_of(failure.last_lines.begin(), failure.last_lines.end(), says_so);
}

bool disk_is_full(const std::string& folder) {
  constexpr std::uintmax_t kLeastRoom_bytes = 16 * 1024;  // a rank's result, at the least
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  return !error && space.available < kLeastRoom_bytes;
}

namespace {

constexpr double kStacks_s = 10;         ///< for a tool to take a hung rank's stacks
constexpr double kHold_s = 0.5;          ///< for it to take hold of the rank, before the others are told to leave
constexpr double kStackLook_s = 0.01;
constexpr double kLastWord_s = 0.25;     ///< for a hung rank whose thread still lives, when the others have left
constexpr double kLeave_s = 1;           ///< for the others to leave, from the word on a hung rank
constexpr double kSilentLink_s = 1;      ///< without a word from another host, when ranks have lost their peers
constexpr double kDeathDeadline_s = 10;  ///< after SIGKILL
constexpr double kQuitDeadline_s = 5;
constexpr double kNever = std::numeric_limits<double>::infinity();
/// Lateness of which this thread neither ran nor waited for a core: it, and perhaps its ranks with it, was stopped.
constexpr double kSuspended_s = 0.25;

/// For which this thread has had a core, or waited for one.
double awake_s() {
  unsigned long long ran_ns = 0, delayed_ns = 0;
  const std::string line = first_line("/proc/thread-self/schedstat");
  return std::sscanf(line.c_str(), "%llu %llu", &ran_ns, &delayed_ns) == 2 ? static_cast<double>(ran_ns + delayed_ns) * 1e-9 : 0;
}

}  // namespace

struct Supervisor::Going {
  RunSpec spec;
  RunHooks hooks;
  HeartbeatFile heartbeats;
  HangWatch watch;
  RunEnds facts;
  std::vector<int> pids;
  std::vector<std::string> places;     ///< by rank: where it runs; empty: here
  std::vector<double> ended_at;
  double started_at = kNever;          ///< when the launcher said that all processes are there
  double kill_at = kNever;             ///< when those that are left get SIGKILL
  double dead_by = kNever;             ///< when they must be gone
  double failure_at = 0, alarm_at = 0;
  bool signalled = false, killed = false, stopped = false, late = false;
  std::size_t left_before_kill = 0;
  std::optional<Stalled> alarm;
  std::optional<RankFailure> stalled;  ///< of the rank that hung, or was slow for too long
  std::unique_ptr<StackTaker> stacks;  ///< of that rank, while they are taken
  std::string to_tell;                 ///< the ranks, when the tool holds it
  double tell_at = kNever;
  HangWatch::Unheard silent;           ///< the longest silence of another host when a rank ended
  int awaited = -1;                    ///< by the first rank that left, if it lost its peers alone
  int64_t shown_step = -1;

  Going(RunSpec spec_, RunHooks hooks_, double now)
      : spec(std::move(spec_)),
        hooks(std::move(hooks_)),
        heartbeats(HeartbeatFile::create(spec.start.dir + "/" + kHeartbeatFile, spec.start.world_size)),
        watch(spec.start.world_size, spec.thresholds, now),
        ended_at(static_cast<std::size_t>(spec.start.world_size)) {
    facts.run = spec.start.run;
    facts.dir = spec.start.dir;
    facts.world_size = spec.start.world_size;
    facts.heartbeat = &heartbeats;
  }
  bool started() const { return started_at < kNever; }
  double seconds(double now) const { return started() ? now - started_at : 0; }
  OngoingRun view(double now) const { return {spec, heartbeats, pids, facts.ends, seconds(now)}; }
  bool all_but_one_ended() const { return static_cast<int>(facts.ends.size()) == spec.start.processes - 1; }
  /// "; rank 1 (process 17) is held by process 4711 (gdb): end that one": of ranks on this host that have not ended.
  std::string those_left() const {
    std::string text;
    for (int rank = 0; rank < spec.start.processes; ++rank) {
      const int pid = watch.process_of(rank).pid;
      if (pid <= 0 || !watch.ranks().alive(rank)) continue;
      const std::string tracer = tracer_of(pid);
      text += fmt::format("; rank {} (process {}) {}", rank, pid,
                          tracer.empty() ? fmt::format("is in the state {}", process_state(pid).state) : "is held by " + tracer + ": end that one");
    }
    return text;
  }
  /// "; it runs on node n2 (process 17 on vm)": of a rank on another host.
  std::string place_of(int rank, const char* runs = "runs") const {
    const auto r = static_cast<std::size_t>(rank);
    return rank < 0 || r >= places.size() || places[r].empty() ? "" : fmt::format("; it {} on {}", runs, places[r]);
  }
};

RunEnds EndedRun::facts() const { return {spec.start.run, spec.start.dir, spec.start.world_size, heartbeats ? &*heartbeats : nullptr, ends}; }

std::vector<std::string> flight_record(const EndedRun& run) {
  const std::string& dir = run.spec.start.dir;
  try {
    if (flight::write_records(dir, run.spec.start.world_size, run.spec.backend) == 0) return {};
    return flight::in_words(flight::judge(flight::read_records(dir + "/flight")));
  } catch (const std::runtime_error& error) {
    // What a failing run left does not hide why it failed.
    return {std::string("cannot be read or written: ") + error.what()};
  }
}

Supervisor::Supervisor(std::unique_ptr<Launcher> launcher, std::string program)
    : launcher_(std::move(launcher)), program_(std::move(program)), created_at_(monotonic_s()) {
  looked(0);
}

Supervisor::~Supervisor() = default;

void Supervisor::start(RunSpec spec, RunHooks hooks) {
  const std::string run = spec.start.run;
  if (going_.empty()) looked(0);  // nobody has waited for anything until now
  auto begun = std::make_unique<Going>(std::move(spec), std::move(hooks), now_s());
  const bool added = going_.emplace(run, std::move(begun)).second;
  LOCKSTEP_CHECK(added, "a run is started once");
  launcher_->start(going_.at(run)->spec.start);
}

void Supervisor::stop(const std::string& run, int signal_number) {
  if (Going* const found = going(run)) signal(*found, signal_number);
}

void Supervisor::stop_all(const std::function<int(const RunSpec&)>& signal_of) {
  for (auto& [id, each] : going_) {
    each->stopped = true;
    signal(*each, signal_of(each->spec));
  }
}

void Supervisor::shut_down() { launcher_->shut_down(kQuitDeadline_s); }

Supervisor::Going* Supervisor::going(const std::string& run) {
  const auto found = going_.find(run);
  return found == going_.end() ? nullptr : found->second.get();
}

double Supervisor::now_s() const { return monotonic_s() - suspended_s_; }

/// Returns for how long nobody looked who could have, beyond `wait_s`.
double Supervisor::looked(double wait_s) {
  const double now = monotonic_s(), awake = awake_s();
  const double away_s = now - std::exchange(looked_at_, now) - wait_s - (awake - std::exchange(awake_at_, awake));
  return away_s;
}

std::vector<EndedRun> Supervisor::poll() {
  double now = now_s(), look_in_s = 0.1;
  for (const auto& [id, each] : going_) {
    look_in_s = std::min(look_in_s, each->spec.look_every_s);
    if (each->started()) look_in_s = std::min(look_in_s, each->watch.next_look_s(now));
    look_in_s = std::min({look_in_s, each->kill_at - now, each->dead_by - now});
    if (each->stacks != nullptr) look_in_s = std::min(look_in_s, kStackLook_s);
  }
  std::vector<EndedRun> ended;
  const std::vector<LauncherEvent> events = launcher_->poll(std::max(0.0, look_in_s));
  if (const double away_s = looked(std::max(0.0, look_in_s)); away_s > kSuspended_s) {
    suspended_s_ += away_s;
    for (auto& [id, each] : going_) each->watch.resumed(away_s, now_s());
  }
  for (const LauncherEvent& event : events) handle(event, ended);
  now = now_s();
  if (!ready_ && now - created_at_ > kLoadDeadline_s)
    throw MachineError(fmt::format("{}: has not loaded within {} s", program_, kLoadDeadline_s));
  for (auto& [id, each] : going_) look_after(*each, now);
  return ended;
}

void Supervisor::handle(const LauncherEvent& event, std::vector<EndedRun>& ended) {
  using Kind = LauncherEvent::Kind;
  if (event.kind == Kind::ready) {
    ready_ = true;
    if (on_ready) on_ready();
    return;
  }
  Going* const run = going(event.run);
  if (run == nullptr || event.kind == Kind::told_to_stop || event.kind == Kind::node_lost) {
    if (on_other_event) on_other_event(event);
    return;
  }
  const double now = now_s();
  switch (event.kind) {
    case Kind::started:
      run->started_at = now;
      run->pids = event.pids;
      run->places = event.places;
      run->watch.started(event.pids, now);
      if (run->hooks.on_started) run->hooks.on_started(run->view(now));
      break;
    case Kind::exit:
      handle_exit(*run, event, ended);
      break;
    case Kind::heartbeat:
      run->heartbeats.take(std::max(event.rank, 0), event.heartbeat);
      run->watch.told(std::max(event.rank, 0), event.heartbeat.process, event.heartbeat.times, now);
      break;
    default:
      throw MachineError(event.run + ": its ranks cannot be started: " + event.message);
  }
}

void Supervisor::handle_exit(Going& run, const LauncherEvent& event, std::vector<EndedRun>& ended) {
  const double now = now_s();
  run.facts.ends.push_back({event.rank, event.code, event.signal, (run.signalled || event.told) && event.signal != 0,
                            event.lost ? event.message : ""});
  run.ended_at[static_cast<std::size_t>(std::max(event.rank, 0))] = monotonic_s();
  note_silence(run, now);  // a rank behind a cut link may leave, and say so in a file
  if (event.rank >= 0) run.watch.ended(event.rank);
  if (static_cast<int>(run.facts.ends.size()) == run.spec.start.processes) {
    ended.push_back(conclude(run));
    return;
  }
  // The others have left, as they were asked to.
  if (run.stalled && run.all_but_one_ended() && !run.killed) run.kill_at = std::min(run.kill_at, now + kLastWord_s);
  if (run.kill_at != kNever || run.killed) return;
  RunEnds this_one = run.facts;
  this_one.ends = {run.facts.ends.back()};
  const auto failure = name_failure(this_one);
  if (!failure) return;
  // Ranks that were stopped in order end one after the other.
  const bool in_order = failure->kind == FailureKind::interrupted;
  if (!in_order) {
    run.failure_at = monotonic_s();
    // Whom it waited for: that one is asked to leave as well, and will say that it lost its peer.
    if (all_lost_their_peers(this_one) && !blame_silent_link(run)) run.awaited = run.watch.behind();
    // A rank that left without a word, and with a good status: its parent has no reason to tell the others.
    if (event.signal == 0 && event.code == 0)
      launcher_->tell(run.spec.start.run, fmt::format("rank {} left: {}", event.rank, failure->message));
  }
  run.kill_at = now + (in_order ? run.spec.stop_grace_s : run.spec.failure_grace_s);
}

void Supervisor::look_after(Going& run, double now) {
  if (now >= run.dead_by) {
    throw MachineError(
        fmt::format("{}: its ranks did not die within {} s of SIGKILL{}", run.spec.start.run, kDeathDeadline_s, run.those_left()));
  }
  if (!run.started() || run.killed) return;
  if (run.hooks.on_look && run.hooks.on_look(run.view(now))) return signal(run, SIGKILL);
  if (run.seconds(now) > run.spec.deadline_s) {
    run.late = true;
    return signal(run, SIGKILL);
  }
  const std::optional<Stalled> stalled = run.watch.look(run.heartbeats, now);
  if (takes_stacks(run, now)) return;
  if (now >= run.kill_at) {
    blame_silent_rank(run);
    if (!takes_stacks(run, now)) signal(run, SIGKILL);
    return;
  }
  if (stalled && run.kill_at == kNever) return heed(run, *stalled);
  const int64_t step = run.heartbeats.step(0);
  if (step == run.shown_step || step < 0) return;
  run.shown_step = step;
  if (run.hooks.on_progress) run.hooks.on_progress(run.view(now));
}

/// A rank that computes is reported and waited for, up to its own limit. One that has said why it failed, and one that left the others
/// before its work was done, is no rank that hangs, nor is who waits for it.
void Supervisor::heed(Going& run, const Stalled& stalled) {
  const int rank = stalled.standstill.rank;
  std::optional<RankFailure> cause = said_failure(run.facts, rank);
  if (!cause) cause = left_early(run.facts, rank, stalled.message);
  if (cause) {
    run.stalled = std::move(cause);
    run.failure_at = monotonic_s();
    run.kill_at = now_s() + run.spec.failure_grace_s;
    launcher_->tell(run.spec.start.run, fmt::format("rank {} failed: {}", run.stalled->rank, run.stalled->message));
    return;
  }
  std::string words = stalled.message;
  if (stalled.slow) {
    words += fmt::format("; a rank that computes may do so for {:g} s (watch.slow_s)", run.spec.thresholds.slow_s);
    if (stalled.ends) words += ": raise it if the work is that long";
  }
  if (!stalled.slow || stalled.ends) {
    declare(run, stalled.slow ? FailureKind::slow : FailureKind::hung, stalled, words);
    run.kill_at = now_s() + kLeave_s;
    return;
  }
  if (!run.hooks.on_slow) return;
  run.hooks.on_slow(run.view(now_s()), stalled_failure(run.facts, FailureKind::slow, stalled.standstill.rank, words));
}

/// Every rank says that it lost its peers, and none is gone by itself: the one that the first of them waited for was silent.
void Supervisor::blame_awaited_rank(Going& run) {
  if (run.stalled || run.stopped || run.awaited < 0 || !all_lost_their_peers(run.facts)) return;
  RunEnds earliest = run.facts;
  earliest.ends = {run.facts.ends.front()};
  const auto first = name_failure(earliest);
  if (!first) return;
  run.stalled = stalled_failure(run.facts, FailureKind::hung, run.awaited,
                                fmt::format("silent while its peers failed; rank {}: {}", first->rank, first->message));
}

void Supervisor::note_silence(Going& run, double now) {
  const HangWatch::Unheard silent = run.watch.unheard(now);
  if (silent.seconds > run.silent.seconds) run.silent = silent;
}

/// Ranks say that they lost their peers, and nothing is heard of another host any more: that is the evidence, against no rank of this one.
bool Supervisor::blame_silent_link(Going& run) {
  note_silence(run, now_s());
  const HangWatch::Unheard& silent = run.silent;
  if (run.stalled || run.stopped || run.places.empty() || silent.seconds < kSilentLink_s || !all_lost_their_peers(run.facts)) return false;
  const auto accusation = name_failure(run.facts);
  const std::string& place = run.places[std::min(static_cast<std::size_t>(silent.rank), run.places.size() - 1)];
  run.stalled = stalled_failure(run.facts, FailureKind::lost, silent.rank,
                                fmt::format("nothing was heard from {} for {:.1f} s: the link to {} is cut, or it is gone; rank {}: {}", place, silent.seconds,
                                            place.substr(0, place.find(" (")), accusation->rank, accusation->message));
  return true;
}

/// Every rank that ended says that another one was silent: that is the rank which has not ended.
void Supervisor::blame_silent_rank(Going& run) {
  if (!run.facts.ends.empty() && blame_silent_link(run)) return;
  const int behind = run.watch.behind();
  if (run.stalled || run.stopped || run.facts.ends.empty() || behind < 0 || !all_lost_their_peers(run.facts)) return;
  const auto accusation = name_failure(run.facts);
  Stalled silent;
  silent.standstill.rank = behind;
  silent.slow = run.watch.computes(behind, now_s());
  silent.message = fmt::format("silent while its peers failed; rank {}: {}", accusation->rank, accusation->message);
  declare(run, silent.slow ? FailureKind::slow : FailureKind::hung, silent, silent.message);
}

/// The others are told at once that the tool holds the rank: one that is told before that ends, and leaves no stack.
void Supervisor::declare(Going& run, FailureKind kind, const Stalled& stalled, const std::string& message) {
  const double now = now_s();
  const int rank = stalled.standstill.rank;
  const std::string words = message + run.place_of(rank);
  run.alarm = stalled;
  run.alarm_at = monotonic_s();
  run.stalled = stalled_failure(run.facts, kind, rank, words);
  run.to_tell = fmt::format("rank {} {}: {}", rank, kind == FailureKind::slow ? "is slow" : "hangs", words);
  run.tell_at = now + kHold_s;
  const ProcessId process = run.watch.process_of(rank);
  if (process.pid > 0 && !is_gone(process))
    run.stacks = std::make_unique<StackTaker>(process.pid, kStacks_s, now, own_stacks_path(run.facts.dir, rank));
  takes_stacks(run, now);
}

/// Are stacks being taken? Until they are there, nobody is killed.
bool Supervisor::takes_stacks(Going& run, double now) {
  const bool done = run.stacks == nullptr || run.stacks->done(now);
  if (!run.to_tell.empty() && (done || now >= run.tell_at || run.stacks->holds())) {
    launcher_->tell(run.spec.start.run, run.to_tell);
    run.to_tell.clear();
  }
  if (!done) return true;
  if (run.stacks == nullptr) return false;
  const Stacks& stacks = run.stacks->stacks();
  write_stacks(run.facts.dir, run.stalled->rank, stacks);
  run.stalled->message += "; " + in_words(stacks);
  run.stacks.reset();
  // Time to leave counts from now on: the tool held it.
  if (run.kill_at != kNever) run.kill_at = std::max(run.kill_at, now + kLastWord_s);
  return false;
}

void Supervisor::signal(Going& run, int number) {
  const double now = now_s();
  launcher_->stop(run.spec.start.run, number);
  run.signalled = true;
  if (number == SIGKILL) {
    if (!run.killed) run.left_before_kill = run.facts.ends.size();
    run.killed = true;
    run.kill_at = kNever;
    // A launcher that is still loading has its own deadline.
    run.dead_by = std::max(now, ready_ ? now : created_at_ + kLoadDeadline_s) + kDeathDeadline_s;
  } else {
    run.kill_at = std::min(run.kill_at, now + run.spec.stop_grace_s);
  }
}

EndedRun Supervisor::conclude(Going& concluded) {
  const std::unique_ptr<Going> run = std::move(going_.at(concluded.spec.start.run));
  going_.erase(run->spec.start.run);
  const double seconds = run->seconds(now_s());
  takes_stacks(*run, kNever);  // of a rank that has ended: what there is of them
  blame_awaited_rank(*run);
  // Of ranks that were killed while they wrote down how they ended.
  remove_left_temporaries(run->facts.dir, [](std::string_view name) { return name.starts_with("rank-"); });
  std::optional<RankFailure> failure = run->stalled ? run->stalled : name_failure(run->facts);
  if (failure && failure->kind == FailureKind::died) failure->message += run->place_of(failure->rank, "ran");
  const bool in_order = failure && failure->kind == FailureKind::interrupted;
  if (failure && !run->stalled && run->stopped && !in_order) failure = interrupted_failure(run->facts);
  if (!run->killed) run->left_before_kill = run->facts.ends.size();
  return {std::move(run->spec), std::move(run->heartbeats), std::move(run->facts.ends), std::move(run->ended_at), std::move(failure),
          std::move(run->alarm), run->alarm_at, run->failure_at, run->stopped, run->late, run->left_before_kill, seconds};
}

EndedRun supervise(Supervisor& supervisor, RunSpec spec, RunHooks hooks, const volatile int* stop_requested) {
  const std::string run = spec.start.run;
  supervisor.start(std::move(spec), std::move(hooks));
  const Urgent urgent;
  for (bool stopped = false;;) {
    std::vector<EndedRun> ended = supervisor.poll();
    if (!ended.empty()) return std::move(ended.front());
    if (stopped || *stop_requested == 0) continue;
    stopped = true;
    supervisor.stop(run, SIGKILL);
  }
}

}  // namespace lockstep
