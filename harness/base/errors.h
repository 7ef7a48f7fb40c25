#pragma once
// The user's mistakes, and our own.

#include <stdexcept>
#include <string>
#include <vector>

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
