#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

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

// The user's mistakes, and our own.

/// One mistake of the user's, with its place: "file:line:column: problem; did you mean X?".
struct ConfigProblem {
  std::string file;
  int line = 0;    ///< from 1; 0: no place (a command-line option)
  int column = 0;  ///< from 1
  std::string message;
  std::string suggestion;  ///< nearest valid word, or empty
  std::string text() const;
};

/// All mistakes found in one reading; the program ends with exit code 2.
class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(std::vector<ConfigProblem> problems);
  explicit ConfigError(const std::string& message);
  const std::vector<ConfigProblem>& problems() const { return problems_; }

 private:
  std::vector<ConfigProblem> problems_;
};

/// The machine's fault, not the user's: disk full, no network, a file that vanished. Exit code 7.
class MachineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of a file or folder of lockstep's own that is not there any more: who did what, and what to do.
MachineError removed_meanwhile(const std::string& path);

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& why);

}  // namespace lockstep

/// A broken invariant of our own; prints and aborts.
#define LOCKSTEP_CHECK(condition, why) \
  ((condition) ? void() : ::lockstep::check_failed(#condition, __FILE__, __LINE__, (why)))

// What the process's exit status says. Other people's scripts rely on it.

namespace lockstep {

inline constexpr int kExitAsExpected = 0, kExitUnexpected = 1, kExitUsage = 2, kExitDied = 3, kExitHung = 4, kExitUndecided = 5,
                     kExitNothing = 6, kExitMachine = 7, kExitInterrupted = 130;

/// The status of several things that happened, of which each asks for one.
inline int worst_exit_code(const std::vector<int>& codes) {
  for (const int code : {kExitMachine, kExitUsage, kExitDied, kExitHung, kExitUnexpected, kExitUndecided}) {
    if (std::ranges::find(codes, code) != codes.end()) return code;
  }
  return kExitAsExpected;
}

inline constexpr const char* kExitCodes =
    "Exit codes: 0 all verdicts as expected, 1 not all, 2 usage or config, 3 a rank died, 4 a rank hung,\n"
    "5 undecided only, or a rank was too slow, 6 nothing selected, 7 the machine's or lockstep's fault, 130 interrupted (run again "
    "to resume).";

// Why a run did not finish, or cannot be judged.

enum class FailureKind {
  died,         ///< by a signal, or with a status and no result
  hung,         ///< stood still for longer than it may
  slow,         ///< computed without a report for longer than it may
  threw,        ///< an exception
  interrupted,  ///< stopped in order, or on request
  not_started,  ///< a run that it needs failed
  lost,         ///< nobody saw its end; there is no result, or not all of what was asked
  unreadable,   ///< it finished, and a file that it left is damaged
  nonfinite,    ///< NaN or infinity in what is judged
  unmeasured,   ///< a metric is missing
  idle,         ///< its planted fault changed nothing: no verdict is about it
};

/// As results.json and reports write them, in the order of the enumerators.
inline constexpr std::array<std::string_view, 11> kFailureKindWords{"died", "hung",       "slow",      "threw",      "interrupted", "not started",
                                                                     "lost", "unreadable", "nonfinite", "unmeasured", "idle"};

constexpr std::string_view to_word(FailureKind kind) { return kFailureKindWords[static_cast<std::size_t>(kind)]; }
inline std::ostream& operator<<(std::ostream& out, FailureKind kind) { return out << to_word(kind); }

// How two runs, or two flight records, part at the first place where they do.

enum class DivergenceKind {
  bits,       ///< the same thing with other bits
  value,      ///< a value that is no rounding of the other's
  missing,    ///< one side has it, the other has not
  order,      ///< both have it, at another place of the order
  shape,      ///< another shape
  dtype,      ///< another element type
  band,       ///< outside the band of rounding
  reduction,  ///< a sum that its terms do not give
  update,     ///< parameters that their own gradient does not give
  clip,       ///< gradients that are not clipped as their own norm demands
  replica,    ///< ranks that should be alike differ
  // Of two flight records: another collective, element type, size, root or purpose; a call that only one has made; how far it came.
  operation,
  type,
  size,
  root,
  purpose,
  missing_call,
  extra_call,
  state,
};

/// As results.json writes them, in the order of the enumerators.
inline constexpr std::array<std::string_view, 19> kDivergenceKindWords{
    "bits",   "value",     "missing", "order", "shape", "dtype", "band",    "reduction",    "update",
    "clip", "replica", "operation", "type",    "size",  "root",  "purpose", "missing call", "extra call", "state"};

constexpr std::string_view to_word(DivergenceKind kind) { return kDivergenceKindWords[static_cast<std::size_t>(kind)]; }
inline std::ostream& operator<<(std::ostream& out, DivergenceKind kind) { return out << to_word(kind); }

}  // namespace lockstep
