#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// The user's mistakes, and our own.

namespace lockstep {

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
