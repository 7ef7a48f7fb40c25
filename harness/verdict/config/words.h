#pragma once
// Words of enumerations in a source file, a line each. What they define is declared beside the enumeration.

#include <array>
#include <cstddef>
#include <string_view>

#include "harness/verdict/config/field.h"

/// Defines words_of(type): the words of all enumerators in their order, of which `last` is the last one.
#define LOCKSTEP_WORDS(type, last, ...)                                            \
  WordList words_of(type) {                                                        \
    static constexpr auto kWords = std::to_array<std::string_view>({__VA_ARGS__}); \
    static_assert(kWords.size() == static_cast<std::size_t>(type::last) + 1);      \
    return kWords;                                                                 \
  }

/// Defines word_of(value) as well: that of one enumerator.
#define LOCKSTEP_WORDS_BOTH_WAYS(type, last, ...) \
  LOCKSTEP_WORDS(type, last, __VA_ARGS__)         \
  std::string_view word_of(type value) { return words_of(value)[static_cast<std::size_t>(value)]; }
