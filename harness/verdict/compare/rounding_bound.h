#pragma once
// What rounding may explain where no repeat has measured it.

#include <cstdint>
#include <limits>

namespace lockstep {

/// The analytic bound, relative to the size of the compared phase, `steps` steps after equal parameters.
/// Rounding of sums (of float32 unless `epsilon` says otherwise), times 128; it grows with the square of the
/// steps because training amplifies what rounding began.
inline double rounding_bound(int64_t steps, double epsilon = std::numeric_limits<float>::epsilon()) {
  const auto grown = static_cast<double>(steps + 1);
  return 128 * epsilon * grown * grown;
}

}  // namespace lockstep
