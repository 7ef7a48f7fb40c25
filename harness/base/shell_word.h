#pragma once
// Words of a command line.

#include <string>
#include <string_view>

namespace lockstep {

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

}  // namespace lockstep
