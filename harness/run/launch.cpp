#include "harness/run/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "harness/base/text.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/matrix/plan_history.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/local/launcher.h"
#include "harness/run/libraries.h"
#include "harness/run/run_folder.h"
#include "harness/run/supervisor.h"

namespace lockstep {
namespace {

/// How long one of its ranks may compute without a report.
double slowest_s(const PlannedRun& run) {
  constexpr double kEstimates = 20;
  const double own_s = run.config.watch.slow_s;
  return own_s > 0 ? own_s : std::max(longest_silence_s(run.config), kEstimates * run.estimate_s);
}

int slots_for(const LaunchOptions& options) {
  if (options.jobs > 0) return options.jobs;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

/// Throws MachineError if somebody has removed what was there when the matrix began.
void require_there(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) || error) return;
  throw removed_meanwhile(path);
}

class Launch {
 public:
  Launch(const Plan& plan, const LaunchOptions& options, const BuildIdentity& identity);
  LaunchReport run();

 private:
  void start(std::size_t job);
  RunSpec spec_of(const PlannedRun& run, const std::string& dir) const;
  RunHooks hooks_of(const PlannedRun& run) const;
  void heed_stop();
  void heed_other(const LauncherEvent& event);
  void require_planned_program() const;
  void conclude(const EndedRun& ended);
  void give_up(std::size_t job, const std::string& need);
  void fail(RankFailure failure, double seconds);
  void tell_failed_saves(const PlannedRun& run, const std::string& dir);
  void tell(const RunEvent& event) const {
    if (options_.on_event) options_.on_event(event);
  }

  const LaunchOptions& options_;
  const BuildIdentity& identity_;
  LaunchReport report_;
  std::vector<const PlannedRun*> runs_;  ///< by job
  std::map<std::string, std::size_t> jobs_;  ///< by run, of those that go on
  std::optional<JobQueue> queue_;
  std::optional<Supervisor> supervisor_;
  int stop_heeded_ = 0;
  std::map<std::size_t, int> requeues_;  ///< by job
};

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
  supervisor_.emplace(options_.make_launcher ? options_.make_launcher() : std::make_unique<LocalLauncher>(options_.rank_program),
                      options_.rank_program);
  supervisor_->on_ready = [this] { require_planned_program(); };
  supervisor_->on_other_event = [this](const LauncherEvent& event) { heed_other(event); };
  const Urgent urgent;
  for (;;) {
    heed_stop();
    while (const auto job = queue_->next()) start(*job);
    if (queue_->done()) break;
    for (const EndedRun& ended : supervisor_->poll()) conclude(ended);
  }
  supervisor_->shut_down();
  return report_;
}

void Launch::start(std::size_t job) {
  const PlannedRun& run = *runs_[job];
  const std::string dir = run_folder(options_.out_dir, run.id);
  require_there(options_.out_dir);
  const std::string data_hash = options_.data_hash_of ? options_.data_hash_of(run.config) : "";
  if (goes_on(dir, run, identity_, data_hash)) tell({RunEvent::Kind::resumed, run.id});
  prepare_run_folder(dir, run, identity_, data_hash);
  jobs_[run.id] = job;
  supervisor_->start(spec_of(run, dir), hooks_of(run));
}

RunSpec Launch::spec_of(const PlannedRun& run, const std::string& dir) const {
  const RunConfig& config = run.config;
  RunSpec spec;
  spec.start = {run.id, dir, config.layout.world_size, processes_of(config), options_.command_started,
                config.process_start == ProcessStart::executed};
  spec.thresholds = thresholds_of(config.watch, config.timeout_s + options_.hang_grace_s, slowest_s(run));
  spec.failure_grace_s = options_.kill_grace_s;
  spec.stop_grace_s = config.checkpoint.on() ? config.checkpoint.grace_s : options_.kill_grace_s;
  spec.backend = config.transport == Transport::nccl ? "nccl" : "gloo";
  return spec;
}

RunHooks Launch::hooks_of(const PlannedRun& run) const {
  const int64_t steps = steps_to_run(run.config);
  RunHooks hooks;
  hooks.on_started = [this, &run, steps](const OngoingRun&) { tell({RunEvent::Kind::started, run.id, 0, steps}); };
  hooks.on_progress = [this, &run, steps](const OngoingRun& going) {
    tell({RunEvent::Kind::progress, run.id, std::min(going.heartbeats.step(0), steps), steps, going.since_started_s, nullptr,
          going.heartbeats.shown(0)});
  };
  hooks.on_slow = [this, &run](const OngoingRun&, const RankFailure& failure) {
    RunEvent event{RunEvent::Kind::slow, run.id};
    event.failure = &failure;
    tell(event);
  };
  return hooks;
}

void Launch::heed_stop() {
  const int own = options_.stop_requested == nullptr ? 0 : *options_.stop_requested;
  const int wish = std::max(own, report_.told_by != 0 ? 1 : 0);
  if (wish <= stop_heeded_) return;
  stop_heeded_ = wish;
  report_.interrupted = true;
  queue_->stop();
  const bool warned = report_.told_by == SIGUSR1 || (options_.stop_signal != nullptr && *options_.stop_signal == SIGUSR1);
  supervisor_->stop_all([&](const RunSpec& spec) {
    const bool saves = runs_[jobs_.at(spec.start.run)]->config.checkpoint.on();
    return wish > 1 ? SIGKILL : warned && saves ? SIGUSR1 : SIGTERM;
  });
}

void Launch::heed_other(const LauncherEvent& event) {
  if (event.kind == LauncherEvent::Kind::told_to_stop) {
    if (report_.told_by == 0) report_.told_by = event.signal;
  } else if (event.kind == LauncherEvent::Kind::node_lost) {
    RankFailure failure;
    failure.kind = FailureKind::lost;
    failure.message = event.message;
    RunEvent lost{RunEvent::Kind::node_lost, ""};
    lost.failure = &failure;
    tell(lost);
  } else if (event.kind != LauncherEvent::Kind::heartbeat) {
    // A late report on a run that was concluded, or one on a run that was never started: it decides nothing.
    tell({RunEvent::Kind::stray, event.run});
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

void Launch::conclude(const EndedRun& ended) {
  const std::size_t job = jobs_.at(ended.spec.start.run);
  jobs_.erase(ended.spec.start.run);
  const PlannedRun& run = *runs_[job];
  const std::string& dir = ended.spec.start.dir;
  std::optional<RankFailure> failure = ended.failure;
  // Whatever its ranks found instead of their files, it is not their fault.
  if (!ended.stopped) require_there(dir + "/run.json");
  if (failure && !ended.stopped) require_surroundings();
  if (!failure) failure = unreadable_failure(ended.facts(), run);
  if (!failure) {
    write_done(dir, run, identity_, ended.seconds);
    queue_->finished(job);
    ++report_.finished;
    const int64_t steps = steps_to_run(run.config);
    tell({RunEvent::Kind::finished, run.id, steps, steps, ended.seconds});
    if (run.config.checkpoint.on()) tell_failed_saves(run, dir);
    return;
  }
  if (failure->kind == FailureKind::lost && !ended.stopped && requeues_[job]++ < options_.most_requeues) {
    ++report_.requeued;
    RunEvent event{RunEvent::Kind::requeued, run.id};
    event.seconds = ended.seconds;
    event.failure = &*failure;
    tell(event);
    queue_->again(job);
    return;
  }
  // Who signals a whole job ends the ranks that save nothing himself, before they are told.
  const bool stops = options_.stop_requested != nullptr && *options_.stop_requested != 0;
  if (stops && failure->kind == FailureKind::died) failure = interrupted_failure(ended.facts());
  const bool interrupted = failure->kind == FailureKind::interrupted;
  if (disk_was_full(*failure) || (!interrupted && disk_is_full(dir))) {
    throw MachineError(
        fmt::format("{}: rank {} found the disk full: {}; free some space and run again to resume",
                    dir, failure->rank, failure->message));
  }
  if (!interrupted) {
    for (const std::string& line : flight_record(ended)) failure->last_lines.push_back("flight record: " + line);
  }
  // Somebody else has told its ranks to stop: it is not finished, and it did not fail.
  if (interrupted) report_.interrupted = true;
  if (interrupted && !ended.stopped && !stops && report_.told_by == 0) {
    // Whoever tells the ranks of one run means the job: the others stop too.
    const bool warned = std::ranges::any_of(ended.ends, [](const RankEnd& end) { return end.code == 128 + SIGUSR1; });
    report_.told_by = warned ? SIGUSR1 : SIGTERM;
  }
  const std::vector<std::size_t> given_up = queue_->failed(job);
  fail(std::move(*failure), ended.seconds);
  if (report_.interrupted) return;
  for (const std::size_t each : given_up) give_up(each, run.id);
}

void Launch::tell_failed_saves(const PlannedRun& run, const std::string& dir) {
  RankFailure failure;
  failure.message = problem_words(read_rank_result(rank_result_path(dir, 0)).checkpoints);
  if (failure.message.empty()) return;
  RunEvent event{RunEvent::Kind::unsaved, run.id};
  event.failure = &failure;
  tell(event);
}

void Launch::give_up(std::size_t job, const std::string& need) {
  RankFailure failure;
  failure.run = runs_[job]->id;
  failure.kind = FailureKind::not_started;
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
