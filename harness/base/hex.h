#pragma once
// Bits as hexadecimal digits, and hashes of bytes that are written that way.

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

}  // namespace lockstep
