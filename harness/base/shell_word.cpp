#include "harness/base/shell_word.h"

#include <algorithm>
#include <utility>

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

void ShellText::add(std::string_view text) {
  for (const char c : text) {
    const char before = text_.empty() ? '\n' : text_.back();
    text_ += c;
    if (within('#')) {
      if (c == '\n') within_.pop_back();
    } else if (within('\'')) {
      if (c == '\'') within_.pop_back();
    } else if (std::exchange(escaped_, false)) {
      continue;
    } else if (c == '\\') {
      escaped_ = true;
    } else if ((c == '"' || c == '`') && within(c)) {
      within_.pop_back();
    } else if (c == '"' || c == '`') {
      within_ += c;
    } else if (within('"')) {
      if (c == '(' && before == '$') within_ += c;
    } else if (c == '\'' || c == '(') {
      within_ += c;
    } else if (c == ')' && within('(')) {
      within_.pop_back();
    } else if (c == '#' && std::string_view(" \t\n;&|(").find(before) != std::string_view::npos) {
      within_ += c;
    }
  }
}

void ShellText::put(std::string_view word) {
  std::string part;
  if (within('\'')) {
    part = shell_quoted(word, Quotes::always);
    part = part.substr(1, part.size() - 2);
  } else if (within('"')) {
    for (const char c : word) part += std::string_view("\\\"$`").find(c) == std::string_view::npos ? std::string(1, c) : std::string{'\\', c};
  } else {
    part = shell_quoted(word);
  }
  // Backticks take one backslash away from these, in quotes too.
  const bool in_backticks = within_.find('`') != std::string::npos;
  for (const char c : part) text_ += in_backticks && std::string_view("\\$`").find(c) != std::string_view::npos ? std::string{'\\', c} : std::string(1, c);
}

std::string replaced(std::string word, std::string_view what, std::string_view by) {
  for (std::size_t at = word.find(what); at != std::string::npos; at = word.find(what, at + by.size()))
    word.replace(at, what.size(), by);
  return word;
}

}  // namespace lockstep
