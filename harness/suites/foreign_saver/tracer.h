#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/suites/foreign_saver/system_calls.h"

// Starts a shell command that is traced from its first instruction.

namespace lockstep::program {

struct Started {
  pid_t pid = -1;
  int input = -1;   ///< the end of the pipe to its standard input; -1: that is /dev/null
  int output = -1;  ///< the end of the pipe from its standard output; -1: that goes to the log
};

// Runs a program under ptrace, sees its operations on files below one folder in the order in which the kernel is asked for
// them, and acts at one of them. Linux on x86-64.

/// What is done before an operation takes place.
enum class InjectedFault {
  nothing,
  kill,        ///< its process dies by SIGKILL
  kill_all,    ///< every process of the program does
  fail,        ///< it returns an error and does nothing (a close does, and still returns it)
  fail_space,  ///< it and all later ones that need space return ENOSPC
  shorten,     ///< half of the bytes are written
  /// Its thread stands still until another process has ended, which stood before its own first operation until then.
  hold,
};

/// Act at one operation: the index-th of a process.
struct Intervention {
  InjectedFault injected = InjectedFault::nothing;
  std::string process;
  int64_t index = 0;
  int error = 0;      ///< of fail
  std::string until;  ///< of hold: the process that must have ended
};

struct TraceOptions {
  std::string watched;     ///< absolute; only operations below it count. Empty: none does
  double deadline_s = 60;  ///< then every process is killed
  double grace_s = 2;      ///< for processes that outlive the command
  double patience_s = 0.3;  ///< of hold: so long may nothing move before the thread goes on
  bool whole = false;      ///< operations with positions and data
  Intervention intervention;
  const volatile int* stop_requested = nullptr;  ///< may be null
};

struct TracedRun {
  std::vector<Operation> operations;  ///< in their order; the last one may not have taken place
  int exit_status = -1;               ///< of the command; 128 + signal if a signal ended it
  bool hung = false;                  ///< the deadline passed
  bool acted = false;                 ///< the intervention's operation was reached
  bool stuck = false;  ///< of hold: the schedule cannot occur, one of the two waits for the other
  int64_t acted_at = 0;               ///< the operation's number
  int64_t released_at = 0;            ///< of hold: of the first operation after it went on; 0: never
  std::set<std::string> notes;        ///< what the tracer cannot see, as it met it
  std::map<std::string, std::string> programs;  ///< process -> its name, as the kernel has it
};

/// Why programs cannot be traced here, in words that say what to change; empty: they can.
std::string tracing_problem();

/// Traces from the thread that made it.
class Tracer {
 public:
  /// What programs print goes to the end of this file.
  explicit Tracer(std::string log_path);
  /// Kills what is left.
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// Runs a shell command until all of its processes have ended.
  TracedRun run(const std::string& command, const TraceOptions& options);

  /// Starts a program that stays: it prints "ready" and a line feed when it has loaded, then takes one command a line
  /// from its standard input, forks a process for each, and reaps it. Returns what went wrong, or nothing.
  std::string start_server(const std::string& command, double deadline_s);
  bool has_server() const;
  /// Sends the server a line and traces the process that it forks for it, until all of that process's own have ended.
  TracedRun run_line(const std::string& line, const TraceOptions& options);

  /// What programs have printed since the last run began: the last bytes.
  std::string printed() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::program
