#include "harness/base/shell_word.h"

#include <algorithm>

namespace lockstep {
namespace {

bool is_plain(char c) {
  constexpr std::string_view kOthers = "_-./:=,@%+";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quoted(std::string_view word, Quotes quotes) {
  const bool plain = !word.empty() && std::ranges::all_of(word, is_plain);
  if (plain && quotes == Quotes::where_needed) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string replaced(std::string word, std::string_view what, std::string_view by) {
  for (std::size_t at = word.find(what); at != std::string::npos; at = word.find(what, at + by.size()))
    word.replace(at, what.size(), by);
  return word;
}

}  // namespace lockstep
