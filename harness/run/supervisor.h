#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/plan/matrix/plan.h"
#include "harness/run/launchers/launcher.h"
#include "harness/run/watch.h"

// Names what went wrong in a run from how its processes ended and from what its ranks wrote.

namespace lockstep {

/// A rank that died, threw or hung: a value, never an exception.
struct RankFailure {
  std::string run;
  FailureKind kind = FailureKind::died;
  int rank = -1;     ///< the first that failed
  int64_t step = -1;
  std::string operation;                ///< what it was doing, from its heartbeat
  std::string message;                  ///< "killed by signal 9", or what was thrown
  std::vector<std::string> last_lines;  ///< of its log, at most 20
};

/// How one process of a run ended.
struct RankEnd {
  int rank = -1;  ///< -1: the process was all ranks of the run
  int code = 0;   ///< exit status, if signal is 0
  int signal = 0;
  bool killed_by_us = false;  ///< after the launcher had sent it a signal
  std::string lost = {};      ///< nobody saw its end; what is known of it
};

struct RunEnds {
  std::string run, dir;
  int world_size = 1;
  const HeartbeatFile* heartbeat = nullptr;
  std::vector<RankEnd> ends;  ///< in order of arrival
};

/// Does the message say no more than that other ranks were gone or silent?
bool only_lost_its_peers(const std::string& message);

/// The first failing rank, or nothing if every rank of the run has left a finished result. A rank that only
/// lost its peers is named if no other failed, and none left early; one that is lost, if no other failed by itself.
std::optional<RankFailure> name_failure(const RunEnds& ends);

/// What the rank, whose process may still be there, has said of its own failure; nothing: it has not failed, or only lost its peers.
std::optional<RankFailure> said_failure(const RunEnds& ends, int rank);

/// Do all processes that have failed so far say that they only lost their peers, and has none left early?
bool all_lost_their_peers(const RunEnds& ends);

/// A run whose ranks all say that they finished: the first of their files that is damaged, cut short or of
/// another run (unreadable), or nothing. `run`: as planned.
std::optional<RankFailure> unreadable_failure(const RunEnds& ends, const PlannedRun& run);

/// The same for a run that was stopped at the user's wish.
RankFailure interrupted_failure(const RunEnds& ends);

/// Does any text of the failure say that the disk is full?
bool disk_was_full(const RankFailure& failure);

/// No room is left where `folder` lies: a rank that died silently may have died of the full disk.
bool disk_is_full(const std::string& folder);

// One run from its start to the reason of its end: its ranks are started through a launcher, watched by their heartbeats, and ended together
// when one of them fails, hangs or is asked to stop. Whoever starts ranks does it through a Supervisor: `lockstep run` (harness/run/launch.h)
// and every suite that tries real ranks.

/// What is to be started, and how long it may take.
struct RunSpec {
  RankStart start;                ///< its folder holds run.json; the supervisor adds the heartbeat file
  Thresholds thresholds;          ///< how long a rank may stand still
  double failure_grace_s = 1;     ///< from the first failure of a rank to SIGKILL of the others
  double stop_grace_s = 1;        ///< from a request to stop, or from the first rank that stops in order, to SIGKILL
  double deadline_s = std::numeric_limits<double>::infinity();  ///< from the moment at which all processes are there to SIGKILL
  double look_every_s = 0.1;      ///< longest time between two looks at a run
  std::string backend = "gloo";   ///< for its flight record
};

/// A run while its ranks live.
struct OngoingRun {
  const RunSpec& spec;
  const HeartbeatFile& heartbeats;
  const std::vector<int>& pids;        ///< by rank; empty: not started yet
  const std::vector<RankEnd>& ends;    ///< in the order in which they came
  double since_started_s = 0;
};

/// How a suite watches or disturbs a run, and how a console shows it. All of them may be empty.
struct RunHooks {
  std::function<void(const OngoingRun&)> on_started, on_progress;
  std::function<void(const OngoingRun&, const RankFailure&)> on_slow;  ///< a rank computes for longer than a threshold; nothing is ended
  std::function<bool(const OngoingRun&)> on_look;  ///< asked at every look; true: SIGKILL to all ranks
};

/// A run that has ended.
struct EndedRun {
  RunSpec spec;
  std::optional<HeartbeatFile> heartbeats;
  std::vector<RankEnd> ends;           ///< in the order in which they came
  std::vector<double> ended_at;        ///< by rank, CLOCK_MONOTONIC seconds; 0: never
  std::optional<RankFailure> failure;  ///< named from ends and results; nothing: all ranks have finished
  std::optional<Stalled> alarm;        ///< of the watch: who hung or was slow for too long
  double alarm_at = 0, failure_at = 0; ///< when the watch said so, when the first rank failed; CLOCK_MONOTONIC seconds; 0: never
  bool stopped = false;                ///< at the wish of whoever called stop
  bool late = false;                   ///< killed at its deadline
  std::size_t left_before_kill = 0;    ///< processes that had ended when the others got SIGKILL
  double seconds = 0;                  ///< since all processes were there

  RunEnds facts() const;
};

/// What the ranks' last collectives say, in sentences; writes RUN/flight. Empty: no rank left a record.
std::vector<std::string> flight_record(const EndedRun& run);

/// Supervises any number of runs over one launcher. Its destructor ends every rank.
class Supervisor {
 public:
  /// `program`: of the ranks, for messages.
  Supervisor(std::unique_ptr<Launcher> launcher, std::string program);
  ~Supervisor();

  /// The run's id must be that of no run that goes on.
  void start(RunSpec spec, RunHooks hooks = {});
  /// Sends the signal to the run's ranks; after SIGTERM or SIGUSR1 they have `stop_grace_s`.
  void stop(const std::string& run, int signal);
  /// The same, and the run counts as stopped at the user's wish.
  void stop_all(const std::function<int(const RunSpec&)>& signal_of);
  /// Waits for events and acts on them; returns runs that have ended. Throws MachineError where no rank can be started, or where ranks
  /// survive SIGKILL.
  std::vector<EndedRun> poll();
  /// Events that concern no run that goes on: ready, told_to_stop, node_lost, and reports on other runs.
  std::function<void(const LauncherEvent&)> on_other_event;
  /// Called once, when the rank program has loaded.
  std::function<void()> on_ready;

  bool idle() const { return going_.empty(); }
  void shut_down();

 private:
  struct Going;
  double now_s() const;  ///< CLOCK_MONOTONIC without the time for which this process was stopped
  double looked(double wait_s);
  Going* going(const std::string& run);
  void handle(const LauncherEvent& event, std::vector<EndedRun>& ended);
  void handle_exit(Going& run, const LauncherEvent& event, std::vector<EndedRun>& ended);
  void look_after(Going& run, double now);
  void note_silence(Going& run, double now);
  bool blame_silent_link(Going& run);
  void blame_silent_rank(Going& run);
  void blame_awaited_rank(Going& run);
  void declare(Going& run, FailureKind kind, const Stalled& stalled, const std::string& message);
  void heed(Going& run, const Stalled& stalled);
  bool takes_stacks(Going& run, double now);
  void signal(Going& run, int number);
  EndedRun conclude(Going& run);

  std::unique_ptr<Launcher> launcher_;
  std::string program_;
  bool ready_ = false;
  double created_at_, looked_at_ = 0, awake_at_ = 0, suspended_s_ = 0;
  std::map<std::string, std::unique_ptr<Going>> going_;
};

/// Supervises one run until it has ended. A stop request other than 0 kills it.
EndedRun supervise(Supervisor& supervisor, RunSpec spec, RunHooks hooks, const volatile int* stop_requested);

}  // namespace lockstep
