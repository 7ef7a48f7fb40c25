#include "harness/base/hex.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace lockstep {

std::string hex16(uint64_t value) { return fmt::format("{:016x}", value); }

std::optional<uint64_t> from_hex16(std::string_view digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (digits.size() != 16 || digits.find_first_not_of(kDigits) != std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

std::string hash_in_hex(std::string_view bytes) { return hex16(XXH3_64bits(bytes.data(), bytes.size())); }

std::string long_hash_in_hex(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return hex16(hash.high64) + hex16(hash.low64);
}

}  // namespace lockstep
