#pragma once
// What /proc says of processes and threads.

#include <sys/types.h>

#include <string>

namespace lockstep::program {

/// The process that a thread belongs to; the thread itself if that is not known.
pid_t group_of(pid_t thread);

/// As the kernel has it: at most 15 bytes.
std::string name_of_process(pid_t pid);

/// Does the thread run, want a processor or wait for a disk, or is it stopped at a call that has not been looked at? A
/// thread that waits for another one, or for a time, does not.
bool is_computing(pid_t group, pid_t thread);

}  // namespace lockstep::program
