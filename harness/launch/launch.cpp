#include "harness/launch/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "harness/base/atomic_file.h"
#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/flight/dump.h"
#include "harness/flight/judge.h"
#include "harness/launch/hang_watch.h"
#include "harness/launch/identity.h"
#include "harness/launch/job_queue.h"
#include "harness/launch/local/launcher.h"
#include "harness/launch/priority.h"
#include "harness/launch/run_folder.h"
#include "harness/launch/stacks.h"
#include "harness/plan/memory.h"

namespace lockstep {
namespace {

constexpr double kLookEvery_s = 0.1;     ///< at the least; beats lie in memory, which poll() cannot watch
constexpr double kStacks_s = 10;         ///< for a tool to take a hung rank's stacks
constexpr double kHold_s = 0.5;          ///< for it to take hold of the rank, before that is told to leave
constexpr double kStackLook_s = 0.01;
constexpr double kLastWord_s = 0.25;     ///< for a hung rank whose thread still lives, when the others have left
constexpr double kTold_s = 1;            ///< for the others to leave, from the word on a hung rank
constexpr double kDeathDeadline_s = 10;  ///< after SIGKILL
constexpr double kQuitDeadline_s = 5;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// How long one of its ranks may compute without a report.
double slowest_s(const PlannedRun& run) {
  constexpr double kEstimates = 20;
  const double own_s = run.config.watch.slow_s;
  return own_s > 0 ? own_s : std::max(longest_silence_s(run.config), kEstimates * run.estimate_s);
}

/// One run while its ranks live.
struct Going {
  const PlannedRun* run;
  std::size_t job;
  RunEnds facts;
  BeatFile beat;
  HangWatch watch;
  double started_at = kNever;  ///< when the parent said that it had
  double kill_at = kNever;     ///< when the rest of it gets SIGKILL
  double dead_by = kNever;     ///< when they must be gone
  bool signalled = false, killed = false, stopped_by_user = false;
  std::optional<RankFailure> stalled;  ///< the rank that hung, or was slow for too long
  std::unique_ptr<StackTaker> stacks;  ///< of that rank, while they are taken
  std::string to_tell;                 ///< to the ranks, when the tool holds it
  double tell_at = kNever;
  int awaited = -1;  ///< by the first rank that left, if it lost its peers alone
  std::optional<LauncherEvent> lost;  ///< the first rank whose end nobody saw
  int64_t shown_step = -1;
  std::vector<std::string> places;  ///< by rank: where it runs; empty: here

  Going(const PlannedRun& run_, std::size_t job_, const std::string& dir, double hang_grace_s, double now)
      : run(&run_),
        job(job_),
        beat(BeatFile::create(dir + "/beat", run_.config.layout.world_size)),
        watch(run_.config.layout.world_size,
              thresholds_of(run_.config.watch, run_.config.timeout_s + hang_grace_s, slowest_s(run_)), now) {
    facts.run = run_.id;
    facts.dir = dir;
    facts.world_size = run_.config.layout.world_size;
    facts.beat = &beat;
  }
  bool started() const { return started_at < kNever; }
  double seconds(double now) const { return started() ? now - started_at : 0; }
};

/// "; it runs on node n2 (process 17 on vm)": of a rank on another host.
std::string place_of(const Going& going, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return rank < 0 || r >= going.places.size() || going.places[r].empty() ? "" : "; it runs on " + going.places[r];
}

class Launch {
 public:
  Launch(const Plan& plan, const LaunchOptions& options, const BuildIdentity& identity);
  LaunchReport run();

 private:
  void start_what_can();
  void start(std::size_t job);
  void heed_stop();
  void wait_for_events();
  void handle(const LauncherEvent& event);
  void require_planned_program() const;
  void handle_exit(Going& going, const LauncherEvent& event);
  void look_after(Going& going, double now);
  void accuse_the_silent(Going& going);
  void accuse_the_awaited(Going& going);
  void declare(Going& going, const char* kind, int rank, const std::string& message);
  void heed(Going& going, const Stalled& stalled);
  bool takes_stacks(Going& going, double now);
  void signal(Going& going, int number);
  void conclude(Going& going);
  void add_flight_record(const Going& ended, RankFailure& failure) const;
  void give_up(std::size_t job, const std::string& need);
  void fail(RankFailure failure, double seconds);
  void tell(const RunEvent& event) const {
    if (options_.on_event) options_.on_event(event);
  }

  const LaunchOptions& options_;
  const BuildIdentity& identity_;
  LaunchReport report_;
  std::vector<const PlannedRun*> runs_;  ///< by job
  std::optional<JobQueue> queue_;
  std::unique_ptr<Launcher> launcher_;
  bool launcher_ready_ = false;
  double launcher_started_ = 0;
  std::map<std::string, std::unique_ptr<Going>> going_;
  int stop_heeded_ = 0;
  int told_signal_ = 0;  ///< by which a scheduler has told the ranks, not us, to end
  std::map<std::size_t, int> requeues_;  ///< by job
};

int slots_for(const LaunchOptions& options) {
  if (options.jobs > 0) return options.jobs;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

Launch::Launch(const Plan& plan, const LaunchOptions& options, const BuildIdentity& identity)
    : options_(options), identity_(identity) {
  constexpr double kShare = 0.4;  // of the machine's memory, for one of two runs side by side
  const double most_bytes = kShare * machine_memory_bytes();
  std::vector<Job> jobs;
  for (const PlannedRun& run : plan.runs) {
    if (run.reused) {
      ++report_.reused;
      tell({RunEvent::Kind::reused, run.id});
      continue;
    }
    runs_.push_back(&run);
    // Threads of emulated ranks wait for each other as processes do: two such runs side by side take longer
    // than one after the other.
    const bool wide = !options.make_launcher && run.memory_bytes > most_bytes;
    jobs.push_back({run.id, run.needs, run.estimate_s, run.config.layout.world_size, run.exclusive || wide});
  }
  queue_.emplace(std::move(jobs), slots_for(options));
}

LaunchReport Launch::run() {
  if (queue_->done()) return report_;
  launcher_started_ = monotonic_s();
  launcher_ = options_.make_launcher ? options_.make_launcher()
                                     : std::make_unique<LocalLauncher>(options_.rank_program);
  const Urgent urgent;
  for (;;) {
    heed_stop();
    start_what_can();
    if (queue_->done()) break;
    wait_for_events();
    const double now = monotonic_s();
    if (!launcher_ready_ && now - launcher_started_ > kLoadDeadline_s) {
      throw MachineError(
          fmt::format("{}: has not loaded within {} s", options_.rank_program, kLoadDeadline_s));
    }
    for (auto& [id, going] : going_) look_after(*going, now);
  }
  launcher_->shut_down(kQuitDeadline_s);
  return report_;
}

void Launch::start_what_can() {
  while (const auto job = queue_->next()) start(*job);
}

void Launch::start(std::size_t job) {
  const PlannedRun& run = *runs_[job];
  const std::string dir = run_folder(options_.out_dir, run.id);
  const std::string data_hash = options_.data_hash_of ? options_.data_hash_of(run.config) : "";
  if (goes_on(dir, run, identity_, data_hash)) tell({RunEvent::Kind::resumed, run.id});
  prepare_run_folder(dir, run, identity_, data_hash);
  going_[run.id] = std::make_unique<Going>(run, job, dir, options_.hang_grace_s, monotonic_s());
  launcher_->start({run.id, dir, run.config.layout.world_size, processes_of(run.config), options_.command_started,
                    run.config.process_start == ProcessStart::executed});
}

void Launch::heed_stop() {
  const int own = options_.stop_requested == nullptr ? 0 : *options_.stop_requested;
  const int wish = std::max(own, told_signal_ != 0 ? 1 : 0);
  if (wish <= stop_heeded_) return;
  stop_heeded_ = wish;
  report_.interrupted = true;
  queue_->stop();
  for (auto& [id, going] : going_) {
    going->stopped_by_user = true;
    const bool warned = told_signal_ == SIGUSR1 || (options_.stop_signal != nullptr && *options_.stop_signal == SIGUSR1);
    signal(*going, wish > 1 ? SIGKILL : warned && going->run->config.checkpoint.on() ? SIGUSR1 : SIGTERM);
  }
}

void Launch::wait_for_events() {
  double deadline = monotonic_s() + kLookEvery_s;
  for (const auto& [id, going] : going_) {
    if (going->started()) deadline = std::min(deadline, monotonic_s() + going->watch.next_look_s(monotonic_s()));
    deadline = std::min({deadline, going->kill_at, going->dead_by});
    if (going->stacks != nullptr) deadline = monotonic_s() + kStackLook_s;
  }
  for (const LauncherEvent& event : launcher_->poll(deadline - monotonic_s())) handle(event);
}

void Launch::handle(const LauncherEvent& event) {
  if (event.kind == LauncherEvent::Kind::ready) {
    launcher_ready_ = true;
    require_planned_program();
    return;
  }
  if (event.kind == LauncherEvent::Kind::told_to_stop) {
    told_signal_ = report_.told_by = event.signal;
    return;
  }
  if (event.kind == LauncherEvent::Kind::node_lost) {
    RankFailure failure;
    failure.kind = "lost";
    failure.message = event.message;
    RunEvent lost{RunEvent::Kind::node_lost, ""};
    lost.failure = &failure;
    tell(lost);
    return;
  }
  const auto found = going_.find(event.run);
  if (found == going_.end()) {
    if (event.kind == LauncherEvent::Kind::beat) return;
    // A late report on a run that was concluded, or one on a run that was never started: it decides nothing.
    RunEvent stray{RunEvent::Kind::stray, event.run};
    tell(stray);
    return;
  }
  Going& going = *found->second;
  switch (event.kind) {
    case LauncherEvent::Kind::started:
      going.started_at = monotonic_s();
      going.watch.started(event.pids, going.started_at);
      going.places = event.places;
      tell({RunEvent::Kind::started, going.run->id, 0, steps_to_run(going.run->config)});
      break;
    case LauncherEvent::Kind::exit:
      handle_exit(going, event);
      break;
    case LauncherEvent::Kind::beat:
      going.beat.take(std::max(event.rank, 0), event.beat);
      going.watch.told(std::max(event.rank, 0), event.beat.process, event.beat.times, monotonic_s());
      break;
    default:
      throw MachineError(event.run + ": its ranks cannot be started: " + event.message);
  }
}

/// The program that has loaded is the one that the runs are noted to be of: a build may have replaced it
/// since.
void Launch::require_planned_program() const {
  if (options_.program_hash.empty()) return;
  const std::string found = hash_of_file(options_.rank_program);
  if (found == options_.program_hash) return;
  throw MachineError(
      fmt::format("{}: changed since the runs were planned: its hash was {} and is {}; run again",
                  options_.rank_program, options_.program_hash, found));
}

void Launch::handle_exit(Going& going, const LauncherEvent& event) {
  going.facts.ends.push_back({event.rank, event.code, event.signal,
                              (going.signalled || event.told) && event.signal != 0});
  if (event.lost && !going.lost) going.lost = event;
  const double now = monotonic_s();
  if (event.rank >= 0) going.watch.ended(event.rank);
  if (static_cast<int>(going.facts.ends.size()) == processes_of(going.run->config)) {
    conclude(going);
    return;
  }
  // The others have left, as they were told to.
  const bool only_it_is_left = going.stalled && static_cast<int>(going.facts.ends.size()) == processes_of(going.run->config) - 1;
  if (only_it_is_left && !going.killed) going.kill_at = std::min(going.kill_at, now + kLastWord_s);
  RunEnds this_one = going.facts;
  this_one.ends = {going.facts.ends.back()};
  if (going.kill_at != kNever) return;
  // Ranks that were stopped in order end one after the other.
  if (const auto failure = name_failure(this_one)) {
    const bool in_order = failure->kind == "interrupted";
    // Whom it waited for: that one is told to leave as well, and will say that it lost its peer.
    if (!in_order && all_lost_their_peers(this_one)) going.awaited = going.watch.behind();
    // A rank that left without a word, and with a good status: its parent has no reason to tell the others.
    if (!in_order && event.signal == 0 && event.code == 0)
      launcher_->tell(going.run->id, fmt::format("rank {} left: {}", event.rank, failure->message));
    going.kill_at = now + (in_order ? going.run->config.checkpoint.grace_s : options_.kill_grace_s);
  }
}

void Launch::look_after(Going& going, double now) {
  const RunConfig& config = going.run->config;
  if (now >= going.dead_by) {
    throw MachineError(
        fmt::format("{}: its ranks did not die within {} s of SIGKILL", going.run->id, kDeathDeadline_s));
  }
  if (!going.started() || going.killed) return;
  const std::optional<Stalled> stalled = going.watch.look(going.beat, now);
  if (takes_stacks(going, now)) return;
  if (now >= going.kill_at) {
    accuse_the_silent(going);
    if (!takes_stacks(going, now)) signal(going, SIGKILL);
    return;
  }
  if (stalled && going.kill_at == kNever) {
    heed(going, *stalled);
    return;
  }
  const int64_t step = going.beat.step(0);
  if (step == going.shown_step || step < 0) return;
  going.shown_step = step;
  const int64_t steps = steps_to_run(config);
  tell({RunEvent::Kind::progress, going.run->id, std::min(step, steps), steps, going.seconds(now), nullptr,
        going.beat.shown(0)});
}

/// One that computes is told and waited for, up to its own limit.
void Launch::heed(Going& going, const Stalled& stalled) {
  const int rank = stalled.standstill.rank;
  const bool ends = !stalled.slow || stalled.ends;
  std::string words = stalled.message;
  if (stalled.slow) {
    words += fmt::format("; a rank that computes may do so for {:g} s (watch.slow_s)", slowest_s(*going.run));
    if (stalled.ends) words += ": raise it if the work is that long";
  }
  if (ends) {
    declare(going, stalled.slow ? "slow" : "hung", rank, words);
    going.kill_at = monotonic_s() + kTold_s;
    return;
  }
  const RankFailure failure = stalled_failure(going.facts, "slow", rank, words);
  RunEvent event{RunEvent::Kind::slow, going.run->id};
  event.failure = &failure;
  tell(event);
}

/// Every rank says that it lost its peers, and none is gone by itself: the one that the first of them waited for was silent.
void Launch::accuse_the_awaited(Going& going) {
  if (going.stalled || going.stopped_by_user || going.lost || going.awaited < 0 || !all_lost_their_peers(going.facts)) return;
  const auto first = name_failure({going.facts.run, going.facts.dir, going.facts.world_size, going.facts.beat, {going.facts.ends.front()}});
  if (!first) return;
  going.stalled = stalled_failure(going.facts, "hung", going.awaited,
                               fmt::format("silent while its peers failed; rank {}: {}", first->rank, first->message));
}

/// Every rank that ended says that another one was silent: that is the rank which has not ended.
void Launch::accuse_the_silent(Going& going) {
  const int behind = going.watch.behind();
  if (going.stalled || going.stopped_by_user || going.facts.ends.empty() || behind < 0) return;
  if (!all_lost_their_peers(going.facts)) return;
  const auto accusation = name_failure(going.facts);
  declare(going, going.watch.computes(behind, monotonic_s()) ? "slow" : "hung", behind,
          fmt::format("silent while its peers failed; rank {}: {}", accusation->rank, accusation->message));
}

/// The others are told at once that the tool holds the rank: one that is told before that ends, and leaves no stack.
void Launch::declare(Going& going, const char* kind, int rank, const std::string& message) {
  const std::string words = message + place_of(going, rank);
  going.stalled = stalled_failure(going.facts, kind, rank, words);
  going.to_tell = fmt::format("rank {} {}: {}", rank, kind == std::string_view("slow") ? "is slow" : "hangs", words);
  const double now = monotonic_s();
  going.tell_at = now + kHold_s;
  if (const int pid = going.watch.pid_of(rank); pid > 0) going.stacks = std::make_unique<StackTaker>(pid, kStacks_s, now);
  takes_stacks(going, now);
}

/// Are stacks being taken? Until they are there, nobody is killed.
bool Launch::takes_stacks(Going& going, double now) {
  const bool done = going.stacks == nullptr || going.stacks->done(now);
  if (!going.to_tell.empty() && (done || now >= going.tell_at || going.stacks->holds())) {
    launcher_->tell(going.run->id, going.to_tell);
    going.to_tell.clear();
  }
  if (!done) return true;
  if (going.stacks == nullptr) return false;
  const Stacks& stacks = going.stacks->stacks();
  write_stacks(going.facts.dir, going.stalled->rank, stacks);
  going.stalled->message += "; " + in_words(stacks);
  going.stacks.reset();
  // Time to leave counts from now on: the tool held it.
  if (going.kill_at != kNever) going.kill_at = std::max(going.kill_at, now + kLastWord_s);
  return false;
}

void Launch::signal(Going& going, int number) {
  const double now = monotonic_s();
  launcher_->stop(going.run->id, number);
  going.signalled = true;
  if (number == SIGKILL) {
    going.killed = true;
    going.kill_at = kNever;
    // A launcher that is still loading has its own deadline.
    going.dead_by = std::max(now, launcher_ready_ ? now : launcher_started_ + kLoadDeadline_s) + kDeathDeadline_s;
  } else {
    const CheckpointConfig& kept = going.run->config.checkpoint;
    going.kill_at = std::min(going.kill_at, now + (kept.on() ? kept.grace_s : options_.kill_grace_s));
  }
}

void Launch::conclude(Going& going) {
  const std::unique_ptr<Going> ended = std::move(going_.at(going.run->id));
  going_.erase(ended->run->id);
  const double seconds = ended->seconds(monotonic_s());
  takes_stacks(*ended, kNever);  // of a rank that has ended: what there is of them
  accuse_the_awaited(*ended);
  // Of ranks that were killed while they wrote down how they ended.
  remove_left_temporaries(ended->facts.dir, [](std::string_view name) { return name.starts_with("rank-"); });
  std::optional<RankFailure> failure = ended->stalled ? ended->stalled : name_failure(ended->facts);
  if (failure && ended->lost && failure->kind == "died" && !ended->stalled) {
    // Its exit says nothing, since there is none.
    failure->kind = "lost";
    failure->rank = ended->lost->rank;
    failure->message = ended->lost->message;
  }
  const bool told_so = failure && failure->kind == "interrupted";
  if (failure && !ended->stalled && ended->stopped_by_user && !told_so) failure = interrupted_failure(ended->facts);
  if (!failure) failure = unreadable_failure(ended->facts, *ended->run);
  if (!failure) {
    write_done(ended->facts.dir, *ended->run, identity_, seconds);
    queue_->finished(ended->job);
    ++report_.finished;
    const int64_t steps = steps_to_run(ended->run->config);
    tell({RunEvent::Kind::finished, ended->run->id, steps, steps, seconds});
    return;
  }
  if (failure->kind == "lost" && !ended->stopped_by_user && requeues_[ended->job]++ < options_.most_requeues) {
    ++report_.requeued;
    RunEvent event{RunEvent::Kind::requeued, ended->run->id};
    event.seconds = seconds;
    event.failure = &*failure;
    tell(event);
    queue_->again(ended->job);
    return;
  }
  const bool interrupted = failure->kind == "interrupted";
  if (!interrupted) add_flight_record(*ended, *failure);
  if (disk_was_full(*failure) || (!interrupted && disk_is_full(ended->facts.dir))) {
    throw MachineError(
        fmt::format("{}: rank {} found the disk full: {}; free some space and run again to resume",
                    ended->facts.dir, failure->rank, failure->message));
  }
  // Somebody else has told its ranks to stop: it is not finished, and it did not fail.
  if (interrupted) report_.interrupted = true;
  const std::vector<std::size_t> given_up = queue_->failed(ended->job);
  fail(std::move(*failure), seconds);
  if (report_.interrupted) return;
  for (const std::size_t job : given_up) give_up(job, ended->run->id);
}

/// What the ranks' last collectives say of it, in OUT/runs/<id>/flight and in the failure's last lines.
void Launch::add_flight_record(const Going& ended, RankFailure& failure) const {
  const std::string& dir = ended.facts.dir;
  if (flight::write_records(dir, ended.facts.world_size, ended.run->config.carrier == Carrier::nccl ? "nccl" : "gloo") == 0) return;
  for (const std::string& line : flight::in_words(flight::judge(flight::read_records(dir + "/flight"))))
    failure.last_lines.push_back("flight record: " + line);
}

void Launch::give_up(std::size_t job, const std::string& need) {
  RankFailure failure;
  failure.run = runs_[job]->id;
  failure.kind = "not started";
  failure.message = "it needs " + need + ", which failed";
  fail(std::move(failure), 0);
}

void Launch::fail(RankFailure failure, double seconds) {
  report_.failures.push_back(std::move(failure));
  RunEvent event{RunEvent::Kind::failed, report_.failures.back().run};
  event.seconds = seconds;
  event.failure = &report_.failures.back();
  tell(event);
}

}  // namespace

LaunchReport launch(const Plan& plan, const LaunchOptions& options, const BuildIdentity& identity) {
  return Launch(plan, options, identity).run();
}

}  // namespace lockstep
