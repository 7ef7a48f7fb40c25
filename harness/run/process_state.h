#pragma once
// What the kernel says of a process of this machine: whether it runs, waits or is stopped.

#include <string>

namespace lockstep {

struct ProcessState {
  char state = '?';      ///< R runs, S sleeps, D waits for a disk, T is stopped, Z has ended; ?: not to be read
  std::string waits_in;  ///< the kernel's function that it sleeps in; empty: unknown
  bool waits_for_disk() const { return state == 'D'; }
  bool stopped() const { return state == 'T' || state == 't'; }
};

/// Of a process that is gone: '?'.
ProcessState process_state(int pid);

/// There is no such process any more, or it has ended and nobody has waited for it.
bool is_gone(int pid);

/// Of a small file, as /proc and /sys have them; empty: it cannot be read.
std::string first_line(const std::string& path);

/// "process 17 (gdb)", which holds the process as its tracer; empty: none does.
std::string tracer_of(int pid);

}  // namespace lockstep
