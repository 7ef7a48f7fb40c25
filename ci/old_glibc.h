// What glibc 2.28 lacks of what lockstep calls: ci/wheel includes it before each file that it compiles for that one.
#pragma once

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/// As glibc 2.34 has it; kernels before 5.9 do not have the call, and descriptors are closed one by one.
inline int close_range(unsigned first, unsigned last, int flags) noexcept {
  if (::syscall(SYS_close_range, first, last, flags) == 0) return 0;
  constexpr unsigned kMost = 1 << 16;  // a container's limit may be a thousand million
  const long open = ::sysconf(_SC_OPEN_MAX);
  for (unsigned file = first; file <= last && file < kMost && static_cast<long>(file) < open; ++file) ::close(static_cast<int>(file));
  return 0;
}

/// As glibc 2.32 has it, of Linux on x86-64 and aarch64.
extern "C" inline const char* sigabbrev_np(int signal) noexcept {
  constexpr const char* kNames[] = {nullptr, "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
                                    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR", "SYS"};
  return signal > 0 && signal < 32 ? kNames[signal] : nullptr;
}
