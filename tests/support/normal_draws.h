#pragma once
// Draws for simulations in tests: by a counter, so the same in every run.

#include <cmath>
#include <cstdint>

#include "harness/verdict/config/seeds.h"

namespace lockstep::support {

class NormalDraws {
 public:
  explicit NormalDraws(uint64_t key) : next_(key << 32) {}
  /// In (0, 1].
  double uniform() { return (static_cast<double>(mix_key(next_++) >> 11) + 1) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }

 private:
  uint64_t next_;
};

}  // namespace lockstep::support
