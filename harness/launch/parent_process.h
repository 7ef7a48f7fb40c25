#pragma once
// The rank parent as lockstep sees it: a child process at the other end of a socket.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/launch/protocol.h"

namespace lockstep {

/// Seconds of CLOCK_MONOTONIC.
double monotonic_s();

class ParentProcess {
 public:
  /// Starts `program` in its own session, so that Ctrl-C reaches lockstep alone; it dies with the thread that
  /// made it. Does not wait for it to have loaded. Throws MachineError.
  explicit ParentProcess(const std::string& program);
  /// Ends it and every rank.
  ~ParentProcess();
  ParentProcess(const ParentProcess&) = delete;
  ParentProcess& operator=(const ParentProcess&) = delete;

  /// Readable when events wait.
  int descriptor() const { return socket_->descriptor(); }
  /// Throws MachineError if it is gone, saying how it ended.
  void send(const ParentCommand& command);
  /// What it has said since the last call, without waiting. Throws MachineError if it is gone.
  std::vector<ParentEvent> receive();
  /// Asks it to kill and reap all ranks and to leave; after `deadline_s` kills it, and the kernel its ranks.
  void shut_down(double deadline_s);

 private:
  [[noreturn]] void gone();
  int reap();

  std::string program_;
  std::unique_ptr<LineSocket> socket_;
  pid_t pid_ = -1;
};

}  // namespace lockstep
