#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/watch.h"

// Starts ranks, wherever that is, and reports how they end. launch.h decides what runs when and what an end
// means.

namespace lockstep {

/// Of LibTorch from a cold disk.
inline constexpr double kLoadDeadline_s = 120;

/// A run whose folder holds run.json.
struct RankStart {
  std::string run;  ///< id
  std::string dir;
  int world_size = 1;
  int processes = 1;           ///< 1 (all ranks in one process, rank = -1) or world_size
  double command_started = 0;  ///< CLOCK_MONOTONIC seconds; 0: unknown
  bool executed = false;       ///< each process is the rank program started anew, not a fork alone
  int first = 0, here = 0;     ///< of the processes, those that this launcher shall start; 0: all
  std::string address = {};    ///< by which ranks on other hosts reach these; empty: there are none
  std::string heartbeats = kHeartbeatFile;  ///< the file of heartbeats in `dir` that these ranks map; another one's is forwarded
};

struct LauncherEvent {
  /// The rank program has loaded | all processes of a run are there | one has ended | nothing was started | a scheduler
  /// has told the ranks' nodes by `signal` to end what they do | progress of a rank on another host | a node is gone.
  enum class Kind { ready, started, exit, refused, told_to_stop, heartbeat, node_lost } kind = Kind::ready;
  std::string run = {};
  std::vector<int> pids = {};  ///< started: by rank; -1: on another host
  int rank = -1;          ///< exit, heartbeat; -1: the process that is all ranks
  int code = 0;           ///< exit: status, if signal is 0
  int signal = 0;         ///< exit: the signal that ended it
  std::string message = {};  ///< refused: why nothing was started; a lost rank or node: what is known of it
  bool told = false;      ///< exit: by its launcher's doing, or lockstep's, a signal had reached it before
  bool lost = false;      ///< exit: nobody saw it end; code and signal say nothing
  HeartbeatNote heartbeat = {};     ///< heartbeat: what it has reported, and its process
  std::vector<std::string> places = {};  ///< started: by rank, where it runs: "node n2 (process 17 on b)"; none: on this host

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    if (self.kind == Kind::ready) return;
    visit("run", self.run);
    if (self.kind == Kind::started) visit("pids", self.pids);
    if (self.kind == Kind::exit || self.kind == Kind::heartbeat) visit("rank", self.rank);
    if (self.kind == Kind::exit) visit("code", self.code);
    if (self.kind == Kind::exit || self.kind == Kind::told_to_stop) visit("signal", self.signal);
    if (self.kind == Kind::heartbeat) HeartbeatNote::members(self.heartbeat, visit);
    if (self.kind == Kind::node_lost || self.kind == Kind::refused) visit("message", self.message);
  }
};

/// Its destructor ends every rank. Each call throws MachineError if it can start nothing any more, saying why.
class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual void start(const RankStart& what) = 0;
  /// Sends the signal to every process of the run.
  virtual void stop(const std::string& run, int signal) = 0;
  /// Tells every rank of the run that lives, on its side channel, why it shall leave: "rank 2 hangs: …". A launcher without
  /// such a channel leaves it; the ranks then wait for their peers, or for SIGKILL.
  virtual void tell(const std::string& /*run*/, const std::string& /*why*/) {}
  /// What has happened since the last call; waits `wait_s` at most for something to happen.
  virtual std::vector<LauncherEvent> poll(double wait_s) = 0;
  /// Ends in order, within `deadline_s`.
  virtual void shut_down(double deadline_s) = 0;
};

// What launchers of processes have in common: events that are kept until they are asked for, and programs started with a log.

/// A launcher that gathers what has happened in `events_`.
class GatheringLauncher : public Launcher {
 protected:
  /// Looks again and again until there is an event, or `wait_s` is over; the events since the last call.
  std::vector<LauncherEvent> look_until(double wait_s, const std::function<void()>& look);
  std::vector<LauncherEvent> take_events() { return std::exchange(events_, {}); }
  std::vector<LauncherEvent> events_;
};

/// How long a launcher sleeps between two looks.
inline constexpr int kLookEvery_ms = 20;

/// The process that is all ranks has the number -1.
inline LauncherEvent exit_event(const RankStart& what, int rank, int code, int signal = 0) {
  return {.kind = LauncherEvent::Kind::exit, .run = what.run, .rank = what.processes == 1 ? -1 : rank, .code = code, .signal = signal};
}

struct ProgramStart {
  std::vector<std::string> words;        ///< words.front() is its path
  std::vector<std::string> environment;  ///< "NAME=value"
  std::string log;                       ///< what it prints is added there
  std::string folder = {};               ///< where it runs; empty: here
};
/// Starts a program that starts ranks, or is one. It leads a session of its own, with the niceness that lockstep was started with, and is told to
/// end (SIGTERM) where lockstep ends. Throws MachineError.
pid_t start_program(ProgramStart what);

}  // namespace lockstep
