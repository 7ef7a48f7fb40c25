#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// Which process is meant, and what the kernel says of it: whether it runs, waits or is stopped.

namespace lockstep {

struct ProcessState {
  char state = '?';      ///< R runs, S sleeps, D waits for a disk, T is stopped, Z has ended; ?: not to be read
  std::string waits_in;  ///< the kernel's function that it sleeps in; empty: unknown
  uint64_t started = 0;  ///< when, in clock ticks since the kernel's boot; 0: not to be read
  bool waits_for_disk() const { return state == 'D'; }
  bool stopped() const { return state == 'T' || state == 't'; }
  bool gone() const { return state == '?' || state == 'Z' || state == 'X'; }
};

/// Of a process that is gone: '?'.
ProcessState process_state(int pid);

/// A process, as it may be said elsewhere: its number alone means another process in another PID namespace, on another host, or later.
struct ProcessId {
  int pid = 0;           ///< in its own PID namespace; 0: not said; -1: not seen from here
  uint64_t space = 0;    ///< its PID namespace, of this boot of its kernel (process_space); 0: not known
  uint64_t started = 0;  ///< ProcessState::started; 0: not known
  bool operator==(const ProcessId&) const = default;
};

/// Of this process: the namespace's inode, xor the first 64 bits of the boot's number; 0: the kernel does not say.
uint64_t process_space();
/// One that this process has started, or knows to be there.
ProcessId process_here(int pid);
/// As it is numbered here: one of this PID namespace as it is, one of a container below by its number here. One of another host or of a
/// namespace that is not below this one, and one of which too little is said, has the number -1.
ProcessId seen_from_here(const ProcessId& said);
/// There is no such process any more, or it has ended and nobody has waited for it. Of one that is not seen from here: false.
bool is_gone(const ProcessId& process);

/// Of a small file, as /proc and /sys have them; empty: it cannot be read.
std::string first_line(const std::string& path);

/// "process 17 (gdb)", which holds the process as its tracer; empty: none does.
std::string tracer_of(int pid);

// What the watch asks of a rank's process: what its threads had of a core since a moment, and what it does now.

class ProcessView {
 public:
  virtual ~ProcessView() = default;
  /// From here on times count.
  virtual void mark(double now) = 0;
  struct Since {
    double ran_s = 0;              ///< of a core that its first thread has had since the mark
    double without_core_s = 0;      ///< for which its first thread was ready and had none, as far as the kernel has counted
    double all_without_core_s = 0;  ///< the same of all its threads together: a rank in a collective waits for Gloo's
    double all_ran_s = 0;           ///< of cores that all its threads have had: a rank may compute in another than the first
    double uncounted_s = 0, all_uncounted_s = 0;  ///< of threads that are ready now: what they may have waited or slept
  };
  /// Of a process that is gone: zeros. The kernel counts a wait when it is over.
  virtual Since since(double now) = 0;
  virtual ProcessState state() = 0;
};

/// Of a process on another host: what was said of it last, by a view there that is marked when the rank is heard of.
class ToldView : public ProcessView {
 public:
  void mark(double) override { since_ = {}; }
  Since since(double) override { return since_; }
  ProcessState state() override { return state_; }
  void take(const ProcessState& state, const Since& since) {
    state_ = state;
    since_ = since;
  }

 private:
  ProcessState state_;
  Since since_;
};

using ProcessViewer = std::function<std::unique_ptr<ProcessView>(int pid)>;
/// By the files under /proc/PID/task, which stay open: a mark costs a few microseconds.
std::unique_ptr<ProcessView> live_view(int pid);

// Stacks of a process that does not go on, taken from outside by a tool that is installed; the process itself does nothing for it.

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
