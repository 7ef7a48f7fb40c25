#include "harness/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Range {
  char32_t first, last;
};

// Marks that reorder what a reader sees, so that a name could read as another one.
constexpr Range kReordering[] = {{0x061C, 0x061C}, {0x200E, 0x200F}, {0x202A, 0x202E}, {0x2066, 0x2069}};

bool within(char32_t code, std::span<const Range> ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [code](const Range& range) { return code >= range.first && code <= range.last; });
}

void encode(char32_t code, std::string& out) {
  const auto put = [&out](char32_t value) { out += static_cast<char>(static_cast<unsigned char>(value)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6)), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12)), put(0x80 | ((code >> 6) & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18)), put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

/// Length of the terminal sequence that begins at `at` (which holds ESC), 0 if none does.
std::size_t terminal_sequence(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size()) return 0;
  std::size_t i = at + 2;
  if (text[at + 1] == '[') {
    while (i < text.size() && text[i] >= 0x20 && text[i] <= 0x3F) ++i;
    return i < text.size() && text[i] >= 0x40 && text[i] <= 0x7E ? i + 1 - at : 0;
  }
  if (text[at + 1] == ']') {
    while (i < text.size() && text[i] != '\a' && text[i] != '\x1b' && text[i] != '\n') ++i;
    if (i < text.size() && text[i] == '\a') return i + 1 - at;
    if (i + 1 < text.size() && text[i] == '\x1b' && text[i + 1] == '\\') return i + 2 - at;
  }
  return 0;
}

char32_t safe_code(char32_t code) {
  if (code == '\n' || code == '\t') return code;
  if (code < 0x20) return 0x2400 + code;
  if (code == 0x7F) return 0x2421;
  const bool c1 = code >= 0x80 && code <= 0x9F;
  const bool non_character = (code & 0xFFFE) == 0xFFFE || (code >= 0xFDD0 && code <= 0xFDEF);
  if (c1 || non_character || within(code, kReordering)) return kReplacement;
  if (code == 0x2028 || code == 0x2029) return '\n';
  return code;
}

std::string named(const char* what, char32_t code) {
  return fmt::format("{} U+{:04X}", what, static_cast<uint32_t>(code));
}

}  // namespace

DecodedCharacter decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  std::size_t length = 0;
  char32_t code = 0, smallest = 0;
  if ((lead & 0xE0) == 0xC0) {
    length = 2, code = lead & 0x1Fu, smallest = 0x80;
  } else if ((lead & 0xF0) == 0xE0) {
    length = 3, code = lead & 0x0Fu, smallest = 0x800;
  } else if ((lead & 0xF8) == 0xF0) {
    length = 4, code = lead & 0x07u, smallest = 0x10000;
  } else {
    return {kReplacement, 1};
  }
  if (at + length > text.size()) return {kReplacement, 1};
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {kReplacement, 1};
    code = (code << 6) | (byte(at + i) & 0x3Fu);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < smallest || surrogate || code > 0x10FFFF) return {kReplacement, 1};
  return {code, length};
}

std::string clean_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      if (const std::size_t skip = terminal_sequence(text, i); skip > 0) {
        i += skip;
        continue;
      }
    }
    if (text[i] == '\r' && (i + 1 == text.size() || text[i + 1] == '\n')) {
      ++i;
      continue;
    }
    const DecodedCharacter next = decode_utf8(text, i);
    encode(safe_code(next.code), out);
    i += next.length;
  }
  return out;
}

std::string clean_line(std::string_view text) {
  std::string out = clean_text(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return out;
}

std::string clean_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t i = 0; i < json.size();) {
    const DecodedCharacter next = decode_utf8(json, i);
    const bool invalid = next.code == kReplacement && next.length == 1;
    if (invalid || safe_code(next.code) == next.code) {
      encode(next.code, out);
    } else if (next.code < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(next.code));
    } else {
      const uint32_t above = static_cast<uint32_t>(next.code) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
    }
    i += next.length;
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  if (text.size() <= kLongest) return std::string("'") += clean_line(text) + "'";
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;  // no character is cut in two
  return std::string("'") += clean_line(text.substr(0, end)) + "...'";
}

std::string unclean_character(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter next = decode_utf8(text, i);
    if (next.code == kReplacement && next.length == 1) return "a byte that is not UTF-8";
    if (safe_code(next.code) != next.code) {
      const bool control = next.code < 0x20 || (next.code >= 0x7F && next.code <= 0x9F);
      const bool mark = within(next.code, kReordering);
      return named(control ? "the control character"
                   : mark  ? "the direction mark"
                           : "the character",
                   next.code);
    }
    i += next.length;
  }
  return "";
}

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > sign + 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

namespace {

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours count one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> names) {
  constexpr std::size_t kLongestWord = 64;  // Nobody mistypes a key into something longer.
  if (word.empty() || word.size() > kLongestWord) return {};
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3);
  bool found = false;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(word, name);
    // Words that differ in every letter are not alike.
    if (distance >= std::max(word.size(), name.size())) continue;
    if (distance < best_distance || (distance == best_distance && !found)) {
      best = name;
      best_distance = distance;
      found = true;
    }
  }
  // Or the only one that begins so, and goes on.
  constexpr std::size_t kFewest = 3;
  const auto begins = [&](std::string_view name) {
    return word.size() >= kFewest && name.size() > word.size() && edit_distance(word, name.substr(0, word.size())) <= word.size() / 4;
  };
  const bool of_one = !found && std::ranges::count_if(names, begins) == 1;
  return of_one ? *std::ranges::find_if(names, begins) : best;
}

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

namespace {

constexpr std::size_t kMostShown = 20;

std::string joined(const std::vector<ConfigProblem>& problems) {
  std::string text;
  // A line that says "and 1 more" is no shorter than the problem that it would hide.
  const std::size_t shown = problems.size() > kMostShown + 1 ? kMostShown : problems.size();
  for (std::size_t i = 0; i < shown; ++i) {
    if (!text.empty()) text += '\n';
    text += problems[i].text();
  }
  const auto more = static_cast<int64_t>(problems.size() - shown);
  if (more > 0) text += fmt::format("\n… and {} more", with_commas(more));
  return text;
}

}  // namespace

std::string ConfigProblem::text() const {
  std::string out;
  if (!file.empty()) {
    const std::string shown = clean_line(file);
    out = line > 0 ? fmt::format("{}:{}:{}: ", shown, line, column) : shown + ": ";
  }
  out += message;
  if (!suggestion.empty()) out += fmt::format("; did you mean {}?", suggestion);
  return clean_text(out);
}

ConfigError::ConfigError(std::vector<ConfigProblem> problems)
    : std::runtime_error(joined(problems)), problems_(std::move(problems)) {}

ConfigError::ConfigError(const std::string& message) : std::runtime_error(message) {
  ConfigProblem problem;
  problem.message = message;
  problems_.push_back(std::move(problem));
}

MachineError removed_meanwhile(const std::string& path) {
  return MachineError(clean_line(path) + " is gone: somebody removed it, or a folder that holds it, while lockstep used it; leave it alone until "
                                         "lockstep has ended, and run again");
}

void check_failed(const char* condition, const char* file, int line, const std::string& why) {
  // stdio alone: the heap may be what is broken.
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why.c_str(), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep
