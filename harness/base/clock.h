#pragma once
// Time that only goes forward.

namespace lockstep {

/// Seconds of CLOCK_MONOTONIC, which all processes of a machine share.
double monotonic_s();

}  // namespace lockstep
