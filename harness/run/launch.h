#pragma once
// Runs the planned runs on the cores, through a launcher, and says how each one ended.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/plan/matrix/plan.h"
#include "harness/run/launchers/launcher.h"
#include "harness/run/supervisor.h"

namespace lockstep {

struct RunEvent {
  /// stray: the launcher reported on a run that is not going; the report is ignored.
  /// resumed: it goes on from the checkpoints of an attempt that was interrupted; it will say from which step.
  /// requeued: its node, or whoever had started its ranks, was lost; it is started again.
  /// slow: a rank has computed without a report for longer than it may stand still; `failure` says what, and nothing is ended.
  /// node_lost: the agent of a node is gone; `failure` says which, and what it held; there is no run.
  /// unsaved: it has finished, and saves of its checkpoints failed; `failure` says which.
  enum class Kind { started, progress, finished, failed, reused, stray, resumed, requeued, slow, node_lost, unsaved } kind = Kind::started;
  std::string run;
  int64_t step = 0, steps = 0;
  double seconds = 0;  ///< since the run started
  const RankFailure* failure = nullptr;
  std::optional<double> shown = {};  ///< progress: the newest value of the trainer's shown metric
};

struct LaunchOptions {
  std::string rank_program;  ///< path of lockstep-rank
  std::string
      program_hash;  ///< of rank_program when the runs were planned; empty: not known, and not compared
  std::string out_dir;
  /// Null: ranks on this machine, forked from rank_program.
  std::function<std::unique_ptr<Launcher>()> make_launcher;
  int jobs = 0;                ///< slots: real ranks, or runs of one process, at once; 0: cores
  double command_started = 0;  ///< CLOCK_MONOTONIC seconds at which the command began, for time to first step
  std::function<void(const RunEvent&)> on_event;
  /// Hash of the data that a run is planned on; null or empty: not known, and not compared with what ranks
  /// read.
  std::function<std::string(const RunConfig&)> data_hash_of;
  const volatile int* stop_requested = nullptr;  ///< set by a signal handler: 1 = drain in order, 2 = kill
  const volatile int* stop_signal = nullptr;     ///< which one asked first; ranks get it too, SIGTERM for one of a terminal
  double hang_grace_s =
      2;  ///< beyond a run's timeout_s, so that what its ranks say of a silent peer comes first
  /// From a rank's failure (or the request to stop) to the SIGKILL of the others. A run with checkpoints has its own
  /// checkpoint.grace_s from the request on.
  double kill_grace_s = 1;
  int most_requeues = 2;  ///< of one run whose node was lost
};

struct LaunchReport {
  std::vector<RankFailure> failures;
  bool interrupted = false;
  int finished = 0, reused = 0, requeued = 0;
  int told_by = 0;  ///< the first signal by which somebody has told the ranks or their parent, not this process, to end
};

/// Runs what the plan says and is not reused, in the order of job_order.h, smaller runs in the gaps, a run's
/// needs before it. Each run writes under OUT/runs/<id>: run.json first (resolved config, provenance), then
/// traces, logs and results of its ranks, then `done` (the hashes that decide reuse). A run that needs a
/// failed one counts as a failure too. After the first request to stop it starts nothing more and ends what
/// is going; the next launch does that again. Leaves no process behind. Throws MachineError.
LaunchReport launch(const Plan& plan, const LaunchOptions& options, const BuildIdentity& identity);

}  // namespace lockstep
