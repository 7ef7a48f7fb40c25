#pragma once
// Two runs side by side, from their traces alone.

#include <cstdint>
#include <string>

#include "harness/judge/judge.h"
#include "harness/judge/results.h"

namespace lockstep {

/// Bitwise agreement of an emulated run and its prefix on real ranks, of `asked` steps. Throws TraceError.
Certification certify(const std::string& emulated_dir, const std::string& real_dir, int64_t asked);

}  // namespace lockstep
