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

/// The word with `by` wherever `what` stood.
std::string replaced(std::string word, std::string_view what, std::string_view by);

}  // namespace lockstep
