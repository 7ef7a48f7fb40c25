#pragma once
// Takes the heartbeats of ranks on this host to lockstep on another one, which cannot see the memory that they are written to.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/run/heartbeat.h"
#include "harness/run/launchers/local/protocol.h"

namespace lockstep {

class HeartbeatForward {
 public:
  using Tell = std::function<void(const LauncherEvent& event)>;
  explicit HeartbeatForward(Tell tell) : tell_(std::move(tell)) {}

  /// Makes the file of heartbeats that these ranks map, if it is one of their own. Throws MachineError.
  void prepare(const RankStart& what);
  /// `pids`: of the ranks from what.first on; one, if a process holds all ranks.
  void started(const RankStart& what, const std::vector<int>& pids);
  /// What a rank on another host has reported, for those here that watch its heartbeats.
  void take(const ParentCommand& command);
  /// Nobody is left of it here: what its ranks reported last is told, and the file removed.
  void ended(const std::string& run);
  /// Tells what has changed, and now and then how the processes are.
  void look(double now);
  /// How long, in milliseconds, until the next look is due; -1: there is nothing to look at.
  int patience_ms() const;

 private:
  struct Watched {
    std::string path;
    HeartbeatFile heartbeats;
    int first;
    bool one_process;  ///< that is all ranks
    std::vector<int> pids;
    std::vector<std::unique_ptr<ProcessView>> views;  ///< by rank from `first` on
    std::vector<uint64_t> told;  ///< by rank: the count of changes that was told
    double states_told_at = 0;
  };
  void look(const std::string& run, Watched& watched, double now);

  Tell tell_;
  std::map<std::string, Watched> runs_;
};

}  // namespace lockstep
