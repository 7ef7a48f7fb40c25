#pragma once
// Where lockstep hears of ranks that a launcher has put on other hosts, whose heartbeats lie in memory that it does not see.
//
// RUN/watcher.json, which this user alone can read, says where it listens. The process that has forked a rank there connects, says the key of that file and which rank
// it speaks for, and forwards the rank's heartbeats and the state of its process; it gets those of the others back, since ranks look
// at each other's while they save. Who cannot connect is not judged, and one of which nothing is heard any more is not either (HangWatch).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/host.h"
#include "harness/run/launchers/launcher.h"
#include "harness/run/launchers/local/protocol.h"

namespace lockstep {

/// Who watches a run, as its folder says.
struct Watcher : HostIdentity {
  std::string run;  ///< its id
  int port = 0;
  int process = 0;  ///< lockstep's
  std::string key;  ///< that only ranks of this start know
  std::string attempt;  ///< of this start of this run: --prepared=ATTEMPT. A process that finds another one here has been left behind
};
void write_watcher(const std::string& run_dir, const Watcher& watcher);
/// Nothing: nobody watches it.
std::optional<Watcher> read_watcher(const std::string& run_dir);
void remove_watcher(const std::string& run_dir);

/// The file of heartbeats that a rank on another host than lockstep's maps.
std::string heartbeats_of_rank(int rank);

/// The first line of a connection; `rank` -1: the process is all ranks.
std::string desk_line(const Watcher& watcher, int rank);

class HeartbeatServer {
 public:
  /// Listens at once, for this host alone. Throws MachineError.
  HeartbeatServer();
  HeartbeatServer(const HeartbeatServer&) = delete;
  HeartbeatServer& operator=(const HeartbeatServer&) = delete;

  const HostIdentity& host() const { return self_; }
  /// Says in the run's folder that and where it is watched; its file of heartbeats is there. Returns the attempt. Throws MachineError.
  std::string expect(const RankStart& what);
  /// A rank has come on another host: from now on the port can be reached from there, and watcher.json says which it is. Throws MachineError.
  void open_to_hosts();
  /// It is over: who speaks for its ranks is hung up on, and what they have left is removed.
  void forget(const std::string& run);
  /// What was told since the last call: events of the kind `heartbeat`. Now and then tells all who speak what others have reported.
  std::vector<LauncherEvent> look(double now);

 private:
  struct Connection {
    std::unique_ptr<LineSocket> socket;
    std::string run;
    int rank = -1;
    std::vector<uint64_t> told = {};  ///< by rank: the count of changes that it was told
  };
  struct Watched {
    RankStart what;
    std::string attempt;
    HeartbeatFile heartbeats;
  };
  bool hear(Connection& connection, std::vector<LauncherEvent>& events);
  void welcome(Door::Guest guest);
  void share(Connection& connection);

  Door door_{Reach::this_host};
  Watcher self_;
  double shared_at_ = 0;
  std::map<std::string, Watched> runs_;
  std::vector<Connection> connections_;
};

}  // namespace lockstep
