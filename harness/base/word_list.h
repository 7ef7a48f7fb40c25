#pragma once
// Lists of words in a sentence.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

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
