#pragma once
// A process that was forked while there was one thread, and forks others from then on: what is forked among threads may
// find a lock that nobody will ever let go.

#include <functional>
#include <string>
#include <sys/types.h>

namespace lockstep::resume {

/// Answers requests one after the other, in a process of its own, until this object ends.
class ForkServer {
 public:
  using Serve = std::function<std::string(const std::string& request)>;
  /// Forks at once. Throws MachineError.
  explicit ForkServer(const Serve& serve);
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  /// From one thread at a time. Throws MachineError if the process has ended.
  std::string ask(const std::string& request);

 private:
  int socket_ = -1;
  pid_t process_ = -1;
};

}  // namespace lockstep::resume
