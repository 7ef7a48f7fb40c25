#pragma once
// What a calibration draws: numbers by key and index, so that none depends on how many others were drawn.

#include <cstddef>
#include <cstdint>

#include "harness/base/normal.h"
#include "harness/verdict/config/stream_keys.h"

namespace lockstep {

enum class DrawPurpose : uint64_t { fixed_design = 1, sequential_design, pool, shape };

class CalibrationDraws {
 public:
  CalibrationDraws(int64_t seed, DrawPurpose purpose, uint64_t which)
      : key_(mix_key(mix_key(static_cast<uint64_t>(seed) ^ mix_key(static_cast<uint64_t>(purpose))) ^ which)) {}

  uint64_t bits() { return mix_key(key_ ^ mix_key(next_++)); }
  /// In (0, 1].
  double uniform() { return (static_cast<double>(bits() >> 11) + 1) * 0x1p-53; }
  /// Standard normal, by Box and Muller.
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = 1 - uniform(), angle = uniform();
    // The sine of an angle is the cosine of a quarter turn less.
    spare_ = standard_normal(radius, angle < 0.25 ? angle + 0.75 : angle - 0.25);
    has_spare_ = true;
    return standard_normal(radius, angle);
  }
  /// In [0, end).
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(bits() % end); }

 private:
  uint64_t key_, next_ = 0;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace lockstep
