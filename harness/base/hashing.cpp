#include "harness/base/hashing.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "harness/base/errors.h"

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

std::string random_hex() {
  std::array<uint64_t, 2> bits{};
  // So few bytes come whole, or not at all.
  while (::getrandom(bits.data(), sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    if (errno != EINTR) throw MachineError(std::string("the kernel gives no random bytes: ") + std::strerror(errno));
  }
  return hex16(bits[0]) + hex16(bits[1]);
}

bool same_secret(std::string_view said, std::string_view secret) {
  if (said.size() != secret.size() || secret.empty()) return false;
  unsigned char differs = 0;
  for (std::size_t i = 0; i < secret.size(); ++i) differs = static_cast<unsigned char>(differs | (said[i] ^ secret[i]));
  return differs == 0;
}

}  // namespace lockstep
