#pragma once
// What launchers of processes have in common: events that are kept until they are asked for, and programs started with a log.

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/launchers/launcher.h"

namespace lockstep {

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
