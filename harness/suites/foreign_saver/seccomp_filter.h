#pragma once
// The filter that stops a program at system calls that may change files, and lets all others run at full speed.

#include <linux/filter.h>

#include <vector>

namespace lockstep::program {

/// For PR_SET_SECCOMP of x86-64: SECCOMP_RET_TRACE for calls of system_calls(), where their arguments can tell only if
/// they open for writing or map shared; for calls of other architectures too, with kForeignCall as their message.
std::vector<sock_filter> tracing_filter();

inline constexpr unsigned kForeignCall = 1;

}  // namespace lockstep::program
