#pragma once
// Keyed draws without a state: the same key gives the same number on every machine.

#include <cstdint>

namespace lockstep {

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection of 64 bits in which every bit of
/// the input affects every bit of the output.
constexpr uint64_t mix64(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/// A key that depends on every part and on their order.
template <typename... Parts>
constexpr uint64_t keyed(uint64_t first, Parts... rest) {
  uint64_t key = mix64(first);
  ((key = mix64(key ^ mix64(static_cast<uint64_t>(rest) + 0x632be59bd9b4e019u))), ...);
  return key;
}

/// In [0, 1), from the upper 53 bits.
constexpr double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace lockstep
