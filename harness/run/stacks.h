#pragma once
// Stacks of a process that does not go on, taken from outside by a tool that is installed; the process itself does nothing for it.

#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep {

/// Where a rank that is a Python process writes its stacks when it is asked to (kOwnStacks), if it has made that file.
std::string own_stacks_path(const std::string& run_dir, int rank);
/// SIGRTMIN and this: the signal that asks for them.
inline constexpr int kOwnStacks = 7;

/// Which tool takes the stacks: for a Python process py-spy first, else eu-stack, gdb, py-spy. Empty: none of them is in PATH.
std::vector<std::string> stack_command(int pid);

/// What a tool said of a process.
struct Stacks {
  std::string text;                 ///< all of it, or one line that says why there is none and what to do
  std::vector<std::string> frames;  ///< functions of its first thread, innermost first: what waits, then who called it; at most 4
};

/// `ended`: the tool ended by itself. A tool that may not trace the process, and one that found no frame, is said to be so.
Stacks read_stacks(const std::string& tool, int pid, const std::string& output, bool ended);

/// "its first thread is in clock_nanosleep < nap < train", or why that is not known.
std::string in_words(const Stacks& stacks);

/// RUN/stacks-<rank>.txt: a line in words, then all that the tool said. Throws MachineError.
void write_stacks(const std::string& run_dir, int rank, const Stacks& stacks);

/// Such a file.
struct KeptStacks {
  int rank = -1;
  std::string path, words;  ///< words: its first line
};
/// Those of a run, by rank.
std::vector<KeptStacks> kept_stacks(const std::string& run_dir);

/// Runs the tool while others go on.
class StackTaker {
 public:
  /// Gives the tool `limit_s`; then it is killed, which lets the process go. `own_stacks`: of a process that may write them itself, which
  /// is asked first.
  StackTaker(int pid, double limit_s, double now, const std::string& own_stacks = "");
  ~StackTaker();
  StackTaker(const StackTaker&) = delete;
  StackTaker& operator=(const StackTaker&) = delete;

  /// Reads what has come; to be called every now and then. True: it is over.
  bool done(double now);
  /// Does a tool hold the process, so that it cannot end meanwhile? True as well if it is over.
  bool holds() const;
  const Stacks& stacks() const { return stacks_; }

 private:
  void over(bool ended);

  int pid_, out_ = -1;
  pid_t tool_ = -1;
  std::string name_, output_;
  double until_;
  bool done_ = false;
  Stacks stacks_;
};

}  // namespace lockstep
