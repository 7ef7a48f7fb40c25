#pragma once
// Foreign text made safe for terminals, reports and messages: names, errors and log lines can hold anything.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

struct DecodedCharacter {
  char32_t code;
  std::size_t length;  ///< bytes
};

/// The code point at `at`; a byte that begins none is one U+FFFD of length 1.
DecodedCharacter decode_utf8(std::string_view text, std::size_t at);

/// Valid UTF-8 without control characters: ANSI sequences are dropped, other controls become their pictures
/// (U+2400...), invalid bytes, non-characters and marks that reorder text become U+FFFD. Line feeds and tabs
/// stay.
std::string clean_text(std::string_view text);

/// clean_text on one line: line feeds and tabs become spaces.
std::string clean_line(std::string_view text);

/// JSON that holds foreign texts, made safe for a terminal: characters that clean_text would replace are
/// written as \uXXXX, which reads back the same.
std::string clean_json(std::string_view json);

/// A word of the user's in a message: 'word', clean and cut if it is long.
std::string in_quotes(std::string_view text);

/// The first character that clean_text would not leave as it is, in words: "the control character U+001B",
/// "the direction mark U+202E", "a byte that is not UTF-8"; empty if there is none.
std::string unclean_character(std::string_view text);

}  // namespace lockstep
