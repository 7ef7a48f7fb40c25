#pragma once
// One run by itself: started, looked at while it goes on, and killed if it must be, until all of its processes have ended.

#include <functional>
#include <vector>

#include "harness/launch/launcher.h"

namespace lockstep {

/// A run that goes on.
struct RunGoing {
  const std::vector<int>& pids;              ///< by rank; empty: not started yet
  const std::vector<LauncherEvent>& exits;  ///< in the order in which they came
  double since_started_s = 0;
};

struct RunLimits {
  double deadline_s = 0;  ///< from the moment at which all processes are there
  double load_s = 0;      ///< more than that until then
  const volatile int* stop_requested = nullptr;  ///< not null; other than 0: kill it
};

/// How a run ended.
struct RunEnded {
  std::vector<LauncherEvent> exits;  ///< in the order in which they came
  bool killed = false;               ///< by SIGKILL, whatever the reason
  std::size_t left_before_kill = 0;  ///< so many processes had ended by then
  bool late = false;                 ///< it was killed behind its deadline, and nobody had requested a stop
  double seconds = 0;                ///< from the moment at which all processes were there
};

/// Starts the run and waits for the end of all its processes. `look` is asked every 2 ms or so, also while they die: true
/// kills them. Throws MachineError where nothing can be started.
RunEnded run_to_end(Launcher& launcher, const RankStart& start, const RunLimits& limits,
                    const std::function<bool(const RunGoing&)>& look);

}  // namespace lockstep
