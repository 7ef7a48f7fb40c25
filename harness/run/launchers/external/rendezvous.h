#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/launcher.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/rank_environment.h"

// How ranks that somebody else has started find each other: by files in the run's folder, which all of them see.
//
// Each rank leaves rank-R.start.json. Rank 0 answers with rendezvous.json, which repeats every rank's nonce: a rank
// takes only an answer with its own, so that what an earlier start left behind is nobody's. When all have taken it rank 0 says so there, and
// all go on; or that one has left, and all leave. Where to meet is said by
// rank 0 alone, of itself, and after its port is bound: no launcher's MASTER_ADDR is relied on.

namespace lockstep {

/// What a rank says of itself; the address is of the interface that others shall use.
struct Arrival : HostIdentity {
  int rank = 0, world = 1;
  int local_rank = -1;
  std::string nonce;    ///< of this process alone
  std::string attempt;  ///< Watcher::attempt; empty: the command did not pass it on
  int port = 0;         ///< of doctor --nodes: where it listens
  int pid = 0;          ///< of the process that says so, and that forks the rank
  int process = 0;      ///< the rank's own; 0: it is not forked yet
  uint64_t pid_started = 0, process_started = 0;  ///< ProcessState::started
  std::string rank_environment;  ///< by whose word it is that rank
  std::string build, isa;
  std::string device;
  std::string accepted;  ///< rank 0's nonce, once this rank has taken its answer
  std::string problem;   ///< why it leaves nevertheless

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    HostIdentity::members(self, visit);
    visit("rank", self.rank);
    visit("world", self.world);
    visit("local_rank", self.local_rank);
    visit("nonce", self.nonce);
    visit("attempt", self.attempt);
    visit("port", self.port);
    visit("pid", self.pid);
    visit("process", self.process);
    visit("pid_started", self.pid_started);
    visit("process_started", self.process_started);
    visit("contract", self.rank_environment);
    visit("build", self.build);
    visit("isa", self.isa);
    visit("device", self.device);
    visit("accepted", self.accepted);
    visit("problem", self.problem);
  }
};

struct Met {
  std::vector<Arrival> ranks;  ///< by rank; of a rank that is not 0 only the first and its own are set
  std::string start;           ///< the same on all ranks, and on no other start
  bool tcp = false;            ///< meet at host:port of rank 0, not by a file
  std::string host;            ///< of rank 0's socket
  int port = 0;
  int listening = -1;          ///< on rank 0, for TCP: that socket, which is the caller's
  bool one_host = true;

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    visit("start", self.start);
    visit("tcp", self.tcp);
    visit("host", self.host);
    visit("port", self.port);
    visit("one_host", self.one_host);
  }
};

std::string start_file(const std::string& run_dir, int rank);

/// The file as it stands; an empty nonce if there is none yet, or none that can be read.
Arrival read_arrival(const std::string& run_dir, int rank);

/// A nonce, this host, the process, the rank environment, the GPU that is this rank's.
Arrival introduce(const RankEnvironment& rank_environment);

/// What is wrong, for a rank that is not 0, with what rank 0 has answered; empty: nothing.
using Examine = std::function<std::string(const Met& answer)>;

/// Asked while a rank waits; throws if it shall leave.
using StayOrThrow = std::function<void()>;

/// Meets the other ranks of the same attempt. `store`: "file", "tcp" or empty: TCP where there are several hosts. A rank for which `examine` finds
/// something wrong says so in its file and returns; all others throw what it said, so that nobody waits for it. Throws RendezvousError.
Met meet(const std::string& run_dir, Arrival mine, const std::string& store, double deadline_s, const Examine& examine = nullptr,
         const StayOrThrow& stay_or_throw = [] {});

/// Ranks that did not come, came twice, or are not of one world.
class RendezvousError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Says in its file, after the meeting, which process the rank is. `mine`: as it stands in Met::ranks.
void note_process(const std::string& run_dir, Arrival mine, int process);

/// How the ranks' programs or processors differ from rank 0's, in words; empty: not at all.
std::string difference_of_identity(const Arrival& first, const Arrival& mine);

/// Can this host reach rank 0's socket? Empty if so, else what went wrong and what to try.
std::string unreachable_text(const Met& met, const Arrival& mine, double deadline_s);

// rank-R.exit.json: how a rank's process ended, by the word of the process that had forked it, or that gave up before.

/// The phase in the result of a rank that gave up before it was forked: it says itself whom it could not meet.
inline constexpr const char* kNotBegun = "launch";

struct RankExit {
  std::string start = {};  ///< Met::start
  int rank = 0;
  int code = 0;    ///< status, if signal is 0
  int signal = 0;  ///< that ended it
  bool told = false;     ///< a signal had been handed on to it, by the launcher or at lockstep's wish
  bool orphaned = false; ///< its own process ended it, because the launcher's process above was gone
  double ended_at = 0;  ///< seconds since 1970, by its host's clock
  std::string attempt = {};  ///< Watcher::attempt; empty: the command did not pass it on

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    visit("start", self.start);
    visit("rank", self.rank);
    visit("code", self.code);
    visit("signal", self.signal);
    visit("told", self.told);
    visit("orphaned", self.orphaned);
    visit("ended_at", self.ended_at);
    visit("attempt", self.attempt);
  }
};

void write_exit(const std::string& run_dir, const RankExit& exit);
/// Nothing while there is none.
std::optional<RankExit> read_exit(const std::string& run_dir, int rank);
std::string exit_file(const std::string& run_dir, int rank);

/// A wish of lockstep's that reaches ranks on all hosts: the n-th signal that each rank shall get.
struct StopWish {
  int number = 0;  ///< from 1; 0: none
  int signal = 0;

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    visit("number", self.number);
    visit("signal", self.signal);
  }
};
void write_stop(const std::string& run_dir, const StopWish& wish);
StopWish read_stop(const std::string& run_dir);
std::string stop_file(const std::string& run_dir);

// A JSON object in a file of its own, by which processes tell each other something.

/// Nothing where there is none yet, or what is there is no object of at most `most_bytes`.
std::optional<nlohmann::json> read_object(const std::string& path, uint64_t most_bytes);

/// The members that are there; nothing where there is no object, or one with a field of another type: it is no word of a process of ours.
template <class T>
std::optional<T> read_members(const std::string& path, uint64_t most_bytes, T value = {}) {
  const auto object = read_object(path, most_bytes);
  if (!object) return std::nullopt;
  try {
    take_members(value, JsonFields(*object, path));
    return value;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Whole or not at all. `purpose`: creating, or keeping a secret. Throws MachineError.
void write_object(const std::string& path, const nlohmann::json& object, OpenFor purpose = OpenFor::creating);
template <class T>
void write_members(const std::string& path, const T& value, OpenFor purpose = OpenFor::creating) {
  nlohmann::json object;
  put_members(object, value);
  write_object(path, object, purpose);
}

// Where lockstep hears of ranks that a launcher has put on other hosts, whose heartbeats lie in memory that it does not see.
//
// RUN/watcher.json, which this user alone can read, says where it listens. The process that has forked a rank there connects, says the key of that file and which rank
// it speaks for, and forwards the rank's heartbeats and the state of its process; it gets those of the others back, since ranks look
// at each other's while they save. Who cannot connect is not judged, and one of which nothing is heard any more is not either (HangWatch).

/// Who watches a run, as its folder says.
struct Watcher : HostIdentity {
  std::string run;  ///< its id
  int port = 0;
  int process = 0;  ///< lockstep's
  std::string key;  ///< that only ranks of this start know
  std::string attempt;  ///< of this start of this run: --prepared=ATTEMPT. A process that finds another one here has been left behind

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    HostIdentity::members(self, visit);
    visit("run", self.run);
    visit("port", self.port);
    visit("process", self.process);
    visit("key", self.key);
    visit("attempt", self.attempt);
  }
};
/// Nothing: nobody watches it.
std::optional<Watcher> read_watcher(const std::string& run_dir);

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
