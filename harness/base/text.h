#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Foreign text made safe for terminals, reports and messages: names, errors and log lines can hold anything.

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

// Numbers of things, in words.

/// "1 seed", "3 seeds".
std::string counted(int64_t count, std::string_view noun);

/// 13402 as "13,402".
std::string with_commas(int64_t number);

// Which known word a mistyped one may mean.

/// The nearest of `names` by edit distance, at most a third of the word's length (and at least one letter)
/// away; empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

// Words of a command line.

enum class Quotes {
  where_needed,  ///< a word of letters, digits and _-./:=,@%+ stands bare
  always,
};

/// A word as a POSIX shell reads it back.
std::string shell_quoted(std::string_view word, Quotes quotes = Quotes::where_needed);

/// A command for a shell that is put together: text as it is, and words that stand for themselves whatever quotes the text has put around them.
class ShellText {
 public:
  void add(std::string_view text);
  /// A word, or the part of one that the text around it makes it.
  void put(std::string_view word);
  const std::string& text() const { return text_; }

 private:
  bool within(char mark) const { return !within_.empty() && within_.back() == mark; }

  std::string text_;
  std::string within_;  ///< what is open: quotation marks, backticks, brackets, and # of a comment
  bool escaped_ = false;
};

/// The word with `by` wherever `what` stood.
std::string replaced(std::string word, std::string_view what, std::string_view by);

// Lists of words in a sentence.

/// "a", "a and b", "a, b and c"; with another word before the last one: "a, b or c". `words`: a list of texts.
template <class Words>
std::string join_words(const Words& words, std::string_view before_last = "and") {
  std::string text;
  std::size_t done = 0;
  for (const std::string_view word : words) {
    if (done > 0 && done + 1 < words.size()) text += ", ";
    if (done > 0 && done + 1 == words.size()) text.append(" ").append(before_last).append(" ");
    text += word;
    ++done;
  }
  return text;
}

}  // namespace lockstep
