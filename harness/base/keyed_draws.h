#pragma once
// Draws that depend on a key and a counter alone, so that the same question gets the same bits everywhere.

#include <cstdint>

namespace lockstep {

/// SplitMix64 (Steele, Lea and Flood 2014) read at any place: draw i is a mix of key + (i + 1) * odd
/// constant.
class KeyedDraws {
 public:
  explicit KeyedDraws(uint64_t key) : key_(key) {}

  uint64_t bits(uint64_t counter) const {
    uint64_t z = key_ + (counter + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  /// In [0, count); count is below 2^32. The upper 32 bits are scaled: each value's share is off by at most
  /// count / 2^32.
  uint32_t below(uint64_t counter, uint32_t count) const {
    return static_cast<uint32_t>(((bits(counter) >> 32) * count) >> 32);
  }

 private:
  uint64_t key_;
};

}  // namespace lockstep
