#pragma once

#include <string>

#include "harness/base/json.h"

// Which host is this, and are two processes on one?

namespace lockstep {

/// What a process says of its host.
struct HostIdentity {
  std::string host;     ///< $LOCKSTEP_HOST ("%n": Slurm's name of the node), else the host's name
  std::string address;  ///< $LOCKSTEP_ADDRESS, else the first IPv4 of $GLOO_SOCKET_IFNAME or of any interface that is up
  /// The kernel's boot and the process's namespaces of processes and of the network, with $LOCKSTEP_HOST where it is set. Empty: /proc
  /// does not say.
  std::string machine;
};

HostIdentity this_host();
/// As the kernel has it; "unknown" where it does not say.
std::string host_name();

/// Why ranks cannot run from here, and what to do: the current folder has been deleted (LibTorch's mathematics library ends a process that
/// has none), or /proc is not mounted (ranks are started and watched through it). Empty: nothing is in the way.
std::string problem_of_surroundings();
/// Throws MachineError if there is one.
void require_surroundings();

/// What a process says of its host, as fields of a JSON object that says more. A field that is not there is empty.
void put_host(nlohmann::json& object, const HostIdentity& host);
void take_host(HostIdentity& host, const JsonFields<>& object);

/// Do two processes see each other's processes, memory-mapped files and 127.0.0.1? Containers of one name, or of one kernel, are two
/// hosts. One host may have two names; then an address tells it from a copy of it that was begun from the same image of its memory.
bool same_host(const HostIdentity& a, const HostIdentity& b);

// Whoever watches must have a core when it wakes: on a busy machine its own delay would be added to every alarm.

/// Puts the calling thread before ordinary ones while the object lives (nice -10), where the system allows it; else does nothing.
/// Processes that the thread forks meanwhile inherit it, and give it up by be_ordinary() before they become anything else.
class Urgent {
 public:
  Urgent();
  ~Urgent();
  Urgent(const Urgent&) = delete;
  Urgent& operator=(const Urgent&) = delete;
  /// For a child that was forked by this thread, whether or not there is such an object: the niceness from before. Safe between fork and exec.
  static void be_ordinary();

 private:
  bool raised_ = false;
};

}  // namespace lockstep
