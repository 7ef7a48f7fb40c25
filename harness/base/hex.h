#pragma once
// Bits as hexadecimal digits, and hashes of bytes and secrets that are written that way.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace lockstep
