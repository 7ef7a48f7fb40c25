#pragma once
// What lockstep and the rank parent say to each other: one JSON object a line over a socket. And the sockets: what a peer may do to lockstep is bounded
// here, for all of them.

#include <poll.h>

#include <concepts>
#include <csignal>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/run/launchers/launcher.h"

namespace lockstep {

// Structs that list their members once, for writer and reader: T::members(self, visit) calls visit("key", self.member) for each.

template <class T>
concept ListsMembers = requires(T& value) { T::members(value, [](const char*, auto&) {}); };
template <ListsMembers T>
void put_members(nlohmann::json& object, const T& value) {
  T::members(value, [&object](const char* key, const auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (ListsMembers<Member>) put_members(object[key], member);
    else if constexpr (std::same_as<Member, char>) object[key] = std::string(1, member);
    else object[key] = member;
  });
}
/// A field of another type throws ConfigError. One that is not there does so too, or leaves its member as it is.
enum class Lacking { refused, left };
template <ListsMembers T>
void take_members(T& value, const JsonFields<>& fields, Lacking lacking = Lacking::left) {
  T::members(value, [&](const char* key, auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if (lacking == Lacking::left && !fields.has(key)) return;
    if constexpr (ListsMembers<Member>) {
      const auto part = fields.at<nlohmann::json>(key);
      take_members(member, JsonFields(part, key), lacking);
    } else if constexpr (std::same_as<Member, char>) {
      const auto text = fields.at<std::string>(key);
      if (text.size() != 1) throw ConfigError(std::string(key) + " is no character");
      member = text.front();
    } else {
      member = fields.at<Member>(key);
    }
  });
}

/// lockstep to parent: what to start; of `kill` only `run` and `signal` count, of `tell` only `run` and `why`, of `heartbeat` only
/// `run`, `rank` and `heartbeat`: what a rank on another host has reported.
struct ParentCommand : RankStart {
  enum class Op { start, kill, tell, heartbeat, quit } op = Op::quit;
  int signal = 9;   ///< kill: sent to every process of the run
  std::string why;  ///< tell: for the ranks' side channels
  int rank = -1;
  HeartbeatNote heartbeat = {};

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    if (self.op == Op::quit) return;
    visit("run", self.run);
    if (self.op == Op::kill) visit("signal", self.signal);
    if (self.op == Op::tell) visit("why", self.why);
    if (self.op == Op::heartbeat) {
      visit("rank", self.rank);
      HeartbeatNote::members(self.heartbeat, visit);
    }
    if (self.op != Op::start) return;
    visit("dir", self.dir);
    visit("world", self.world_size);
    visit("processes", self.processes);
    visit("executed", self.executed);
    visit("first", self.first);
    visit("here", self.here);
    visit("address", self.address);
    visit("beats", self.heartbeats);
    visit("command_started", self.command_started);
  }
};

/// One line, ended by a newline.
std::string to_line(const ParentCommand& command);
std::string to_line(const LauncherEvent& event);

/// The inverse. Throws std::runtime_error quoting the line.
ParentCommand command_from_line(const std::string& line);
LauncherEvent event_from_line(const std::string& line);

/// More than any message has: the processes of a hundred thousand ranks.
inline constexpr std::size_t kMostOfALine_bytes = 1 << 20;

/// Whole lines over a connected stream socket, which it owns.
class LineSocket {
 public:
  /// `takes_within_s`: an other end that takes nothing for so long is gone.
  explicit LineSocket(int descriptor, double takes_within_s = std::numeric_limits<double>::infinity())
      : descriptor_(descriptor), takes_within_s_(takes_within_s) {}
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;
  ~LineSocket();

  int descriptor() const { return descriptor_; }
  /// False if the other end is gone.
  bool send(const std::string& line);
  /// Can something be sent without waiting?
  bool takes_more() const;
  /// Takes what is there, some of it if it is much, without waiting. False once the other end is gone, or sends more than that without a line's end.
  bool receive(std::size_t most_of_a_line = kMostOfALine_bytes);
  /// The next whole line that was received.
  std::optional<std::string> line();

 private:
  int descriptor_;
  double takes_within_s_;
  std::string buffer_;
  std::size_t taken_ = 0;       ///< of it
  std::size_t unfinished_ = 0;  ///< at its end, without a line's end
};

/// By whom a port can be reached.
enum class Reach { this_host, all_hosts };

/// A socket that listens at the first free port of $LOCKSTEP_PORTS ("20000-20099"), else at one of the system's choice. Throws MachineError.
int listening_socket(int& port, Reach reach = Reach::all_hosts);

/// A connection to an IPv4 address and a port; -1, with the reason in `problem`, if there is none in time.
int connected_within(const std::string& address, int port, double deadline_s, std::string& problem);

/// A port of lockstep's, for those who know its key: the first line of a connection is a JSON object with it. Whoever says another, more than a hello
/// has, or nothing for some seconds is hung up on; few such are heard at once, and little of each, so that a stranger takes neither time nor memory.
class Door {
 public:
  /// Listens at once. Throws MachineError.
  explicit Door(Reach reach);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  struct Guest {
    std::unique_ptr<LineSocket> socket;
    std::string hello;  ///< its first line, with the key
  };
  int port() const { return port_; }
  const std::string& key() const { return key_; }
  /// From now on it can be reached from all hosts; the port may be another. False: it could already. Throws MachineError.
  bool open_to_hosts();
  /// Who was let in since the last call.
  std::vector<Guest> look(double now);
  /// What to wait for before the next look.
  void add_to(std::vector<pollfd>& wait) const;

 private:
  struct Stranger {
    std::unique_ptr<LineSocket> socket;
    double came_at;
  };
  void listen();
  void let_in(double now);

  Reach reach_;
  std::string key_;
  int port_ = 0, listening_ = -1;
  std::vector<Stranger> strangers_;  ///< the first has waited longest
};

/// SIGTERM and SIGUSR1, by which a scheduler tells a run to end: a rank may have a handler for them.
sigset_t stop_signals();
/// These and whatever else reaches every process of a job at once (Ctrl-C, the end of a terminal): nothing that a rank
/// parent may end of, since it takes all of its ranks with it.
sigset_t signals_of_a_job();

/// For a connection of lockstep and another host: sent at once, and closed some ten seconds after that host is gone without a word.
void set_side_channel(int connected);

}  // namespace lockstep
