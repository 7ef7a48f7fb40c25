#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// Are they the same bits? Two NaNs can be equal; 0 and -0 are not.
inline bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace lockstep
