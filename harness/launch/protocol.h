#pragma once
// What lockstep and the rank parent say to each other: one JSON object a line over a socket.

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// lockstep to parent.
struct ParentCommand {
  enum class Op { start, kill, quit } op = Op::quit;
  std::string run;             ///< start, kill: the run's id
  std::string dir;             ///< start: the run's folder, which holds run.json
  int world_size = 1;          ///< start
  int processes = 1;           ///< start: 1 (all ranks in one process, rank = -1) or world_size
  double command_started = 0;  ///< start: CLOCK_MONOTONIC seconds; 0: unknown
  int signal = 9;              ///< kill: sent to every process of the run
  bool executed = false;       ///< start: each process is the rank program started anew, not a fork alone
};

/// Parent to lockstep.
struct ParentEvent {
  enum class Kind { ready, started, exit, refused } kind = Kind::ready;
  std::string run;
  std::vector<int> pids;  ///< started: by rank
  int rank = -1;          ///< exit; -1: the process that is all ranks
  int code = 0;           ///< exit: status, if signal is 0
  int signal = 0;         ///< exit: the signal that ended it
  std::string message;    ///< refused: why nothing was started
};

/// One line, ended by a newline.
std::string to_line(const ParentCommand& command);
std::string to_line(const ParentEvent& event);

/// The inverse. Throws std::runtime_error quoting the line.
ParentCommand command_from_line(const std::string& line);
ParentEvent event_from_line(const std::string& line);

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
  /// Takes what is there, without waiting. False once the other end is gone.
  bool receive();
  /// The next whole line that was received.
  std::optional<std::string> line();

 private:
  int descriptor_;
  std::string buffer_;
};

}  // namespace lockstep
