#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Bits as hexadecimal digits, and hashes of bytes and secrets that are written that way.

namespace lockstep {

/// 16 digits, small letters.
std::string hex16(uint64_t value);

/// What `hex16` gave; nothing if the text is not 16 such digits.
std::optional<uint64_t> from_hex16(std::string_view digits);

/// XXH3 of 64 bits in 16 digits.
std::string hash_in_hex(std::string_view bytes);

/// XXH3 of 128 bits in 32 digits, for what must be told apart among very many.
std::string long_hash_in_hex(std::string_view bytes);

/// 128 bits of the kernel's randomness in 32 digits: a secret, or a name that nothing else has. Throws MachineError.
std::string random_hex();

/// Are they equal? As long for a wrong text as for the right one, so that a secret cannot be found digit by digit.
bool same_secret(std::string_view said, std::string_view secret);

// Keyed draws without a state: the same key gives the same number on every machine.

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
