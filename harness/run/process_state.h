#pragma once
// Which process is meant, and what the kernel says of it: whether it runs, waits or is stopped.

#include <cstdint>
#include <string>

namespace lockstep {

struct ProcessState {
  char state = '?';      ///< R runs, S sleeps, D waits for a disk, T is stopped, Z has ended; ?: not to be read
  std::string waits_in;  ///< the kernel's function that it sleeps in; empty: unknown
  uint64_t started = 0;  ///< when, in clock ticks since the kernel's boot; 0: not to be read
  bool waits_for_disk() const { return state == 'D'; }
  bool stopped() const { return state == 'T' || state == 't'; }
  bool gone() const { return state == '?' || state == 'Z' || state == 'X'; }
};

/// Of a process that is gone: '?'.
ProcessState process_state(int pid);

/// A process, as it may be said elsewhere: its number alone means another process in another PID namespace, on another host, or later.
struct ProcessId {
  int pid = 0;           ///< in its own PID namespace; 0: not said; -1: not seen from here
  uint64_t space = 0;    ///< its PID namespace, of this boot of its kernel (process_space); 0: not known
  uint64_t started = 0;  ///< ProcessState::started; 0: not known
  bool operator==(const ProcessId&) const = default;
};

/// Of this process: the namespace's inode, xor the first 64 bits of the boot's number; 0: the kernel does not say.
uint64_t process_space();
/// One that this process has started, or knows to be there.
ProcessId process_here(int pid);
/// As it is numbered here: one of this PID namespace as it is, one of a container below by its number here. One of another host or of a
/// namespace that is not below this one, and one of which too little is said, has the number -1.
ProcessId seen_from_here(const ProcessId& said);
/// There is no such process any more, or it has ended and nobody has waited for it. Of one that is not seen from here: false.
bool is_gone(const ProcessId& process);

/// Of a small file, as /proc and /sys have them; empty: it cannot be read.
std::string first_line(const std::string& path);

/// "process 17 (gdb)", which holds the process as its tracer; empty: none does.
std::string tracer_of(int pid);

}  // namespace lockstep
