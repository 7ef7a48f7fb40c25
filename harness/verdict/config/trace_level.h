#pragma once
// How much of each tensor a trace keeps.

namespace lockstep {

/// Nothing is written | a fingerprint | and four statistics | and every value.
enum class TraceLevel { off, hash, stats, full };

}  // namespace lockstep
