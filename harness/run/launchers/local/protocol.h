#pragma once
// What lockstep and the rank parent say to each other: one JSON object a line over a socket.

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/launchers/launcher.h"

namespace lockstep {

/// lockstep to parent: what to start; of `kill` only `run` and `signal` count, of `tell` only `run` and `why`, of `heartbeat` only
/// `run`, `rank` and `heartbeat`: what a rank on another host has reported.
struct ParentCommand : RankStart {
  enum class Op { start, kill, tell, heartbeat, quit } op = Op::quit;
  int signal = 9;   ///< kill: sent to every process of the run
  std::string why;  ///< tell: for the ranks' side channels
  int rank = -1;
  HeartbeatNote heartbeat = {};
};

/// One line, ended by a newline.
std::string to_line(const ParentCommand& command);
std::string to_line(const LauncherEvent& event);

/// The inverse. Throws std::runtime_error quoting the line.
ParentCommand command_from_line(const std::string& line);
LauncherEvent event_from_line(const std::string& line);

/// Whole lines over a connected stream socket, which it owns.
class LineSocket {
 public:
  explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;
  ~LineSocket();

  int descriptor() const { return descriptor_; }
  /// False if the other end is gone.
  bool send(const std::string& line);
  /// Can something be sent without waiting?
  bool takes_more() const;
  /// Takes what is there, without waiting. False once the other end is gone.
  bool receive();
  /// The next whole line that was received.
  std::optional<std::string> line();

 private:
  int descriptor_;
  std::string buffer_;
};

/// SIGTERM and SIGUSR1, by which a scheduler tells a run to end: a rank may have a handler for them.
sigset_t stop_signals();
/// These and whatever else reaches every process of a job at once (Ctrl-C, the end of a terminal): nothing that a rank
/// parent may end of, since it takes all of its ranks with it.
sigset_t signals_of_a_job();

/// For a connection of lockstep and another host: sent at once, and closed some ten seconds after that host is gone without a word.
void set_side_channel(int connected);

}  // namespace lockstep
