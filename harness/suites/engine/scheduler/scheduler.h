#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "harness/answer/results/suite_results.h"
#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/storage.h"

// A function with a stack of its own on its caller's thread: it stops in the middle and goes on later.

namespace lockstep::scheduler {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  /// It must have come to its end.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it until it suspends itself or ends. To be called by the thread that made it. The body throws nothing.
  void resume();
  /// Called within the body: goes back to who resumed it.
  void suspend();

 private:
  struct Context;
  static void enter(unsigned high, unsigned low);
  std::unique_ptr<Context> context_;
};

/// Sanitizers follow threads and lose their way in fibers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kFibersAreSeen = false;
#else
inline constexpr bool kFibersAreSeen = true;
#endif

// Processes (ranks, runs) that share a disk in memory, one of them at a time, so that the order of all that they do is
// prescribed and the same each time.

/// Before its operation `at`, this process stops and `to` goes on; the process comes again when all others cannot, or,
/// with `soon`, right after `to` has ended or waits.
struct Preemption {
  int process = 0;
  int64_t at = 0;
  int to = 0;
  bool soon = false;
};

/// What an process is. A fiber is a hundred times faster where many programs share the cores; what starts threads of its own
/// (an asynchronous save) needs to be one.
enum class Engine { fibers, threads };

/// One of the processes has the turn, which it gives away when it waits, ends or is preempted. What the holder of the turn
/// writes, the next one reads: nothing else needs a lock.
class Scheduler {
 public:
  /// `order`: who has the turn first, and who comes before whom when several can go on.
  Scheduler(int processes, std::vector<int> order, Engine engine = Engine::fibers);
  explicit Scheduler(int processes);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Runs `play` once for each process; returns when all have ended. What one of them throws comes from here.
  void run(const std::function<void(int process)>& play);

  /// Called by the process that has the turn.
  void give_way(int process, int to, bool soon);
  /// Waits until `ready`, which is asked whenever a turn ends. False: nobody can go on, and this one is to give up.
  bool wait(int process, std::function<bool()> ready);
  /// Stands still until all others have ended.
  void hang(int process);

  /// Seconds of a clock that only `advance` moves: what slow operations take.
  double now_s() const { return now_s_; }
  /// Lets the time pass, and those go on who had waited for it.
  void advance(int process, double seconds);
  /// Was there a moment at which nobody could go on?
  bool stalled() const { return stalled_; }

 private:
  struct Seat;
  int next();
  void pass(int from);
  void run_fibers(const std::function<void(int)>& play);
  void run_threads(const std::function<void(int)>& play);
  bool can_go(int process) const;

  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<int> order_;
  Engine engine_;
  int turn_ = -1;
  double now_s_ = 0;
  bool stalled_ = false;
};

// Schedules of processes on a scheduler, tried by families: who stops and who goes on is fixed, where it stops is not.

/// Who begins, and who is stopped where.
struct Schedule {
  std::vector<int> order;  ///< of processes
  std::vector<Preemption> preemptions = {};
};

/// All schedules in which one process stops at one operation.
struct Family {
  std::vector<int> order;
  int stops = 0, goes_on = 0;
  bool soon = false;
  bool doubles = false;  ///< also stop the other one, at each of its operations
};

/// Every order of the processes; the first of them stops for the second one; of three, the second one for the third as well.
std::vector<Family> families_of(int processes);

/// The single preemption before operation `at`, and all double ones that begin with it. `play` takes a schedule and returns
/// what came of it, which tells by `preempted` what took place; `each` takes the schedule, that, and whether it is a double
/// one, and returns false to end it. False: the process has no such operation.
template <class SharedRun, class Each>
bool play_family(const Family& family, int64_t at, SharedRun play, Each each) {
  const Schedule single{family.order, {{family.stops, at, family.goes_on, family.soon}}};
  const auto end = play(single);
  if (!end.preempted[0]) return false;
  if (!each(single, end, false) || !family.doubles) return true;
  for (int64_t other = 0;; ++other) {
    Schedule both = single;
    both.preemptions.push_back({family.goes_on, other, family.stops});
    const auto double_end = play(both);
    if (!double_end.preempted[1] || !each(both, double_end, true)) return true;
  }
}

// Ranks of a scheduler as a group. It does what SocketGroup does (harness/lib/checkpoint/socket_group.h): an end is noticed at once,
// a rank that leaves tells the others why, silence is measured from the last sign. Only its time is the scheduler's.

class Meeting;

class ScheduledGroup final : public checkpoint::Group {
 public:
  ScheduledGroup(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override;
  checkpoint::Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override;
  void progress() override;
  /// The rank's process ends: its sockets close.
  void end();
  /// The next gather ends this rank when this many others have its text.
  void end_within(int others) { others_before_end_ = others; }

 private:
  std::string problem_among(const std::string& label, double begun_s, double deadline_s) const;
  std::string leave(const std::string& problem);

  Meeting& meeting_;
  int rank_;
  int others_before_end_ = -1;
  std::string broken_;
};

/// What lies between the ranks: texts that were sent and not read yet.
class Meeting {
 public:
  /// The ranks are the scheduler's processes from `first_process` on.
  Meeting(Scheduler& scheduler, int first_process, int ranks);
  Scheduler& scheduler;
  const int first_process, ranks;

  struct Message {
    bool leaving = false;
    std::string label, text;
  };
  std::deque<Message>& box(int from, int to);
  std::vector<bool> ended;
  std::vector<double> heard_s;

 private:
  std::vector<std::deque<Message>> boxes_;
};

// One rank on a scheduler: its hook, which ends it, makes an operation fail, or gives the turn to another at the operation
// that its script names.

/// What befalls a rank at an operation.
enum class InjectedFault {
  nothing,
  end,          ///< its process ends before it
  end_all,      ///< all processes of the job end before it
  end_within,   ///< half of a write is done, or some of the others have its text, and its process ends
  fail,         ///< it is not performed and fails
  fail_done,    ///< it is performed, and fails all the same
  fail_onward,  ///< it and every later one that needs room on the disk
  fail_folder,  ///< it and every later one that changes a file or folder
  shorten,      ///< a write takes one byte
  slow,         ///< each operation on files from here on takes that many seconds
  hang,         ///< it never returns
};

struct Script {
  InjectedFault injected = InjectedFault::nothing;
  int64_t at = -1;
  std::error_code error = {};
  int reach = 0;         ///< end_within a gather: others that have the text
  double seconds = 0;    ///< slow: of each operation
};

/// What was done on a scheduler, in its order.
struct Note {
  int process = 0;
  checkpoint::Operation operation = {};  ///< without bytes
  std::size_t size = 0;                  ///< of what was written
  std::string bytes = {};                ///< that were written, where they are kept
  std::error_code error = {};
  std::string mark = {};
};

/// What the processes of one case share.
struct SharedRun {
  Scheduler& scheduler;
  std::vector<Preemption> preemptions = {};
  bool notes_wanted = false, bytes_wanted = false;
  bool syncs_left_out = false;  ///< on a real disk, where no power is lost
  std::vector<Note> notes = {};
  std::vector<bool> preempted = {};  ///< by preemption: it took place
  std::vector<int> committed = {};   ///< processes that heard of their commit, the first one first
};

class ScheduledProcess final : public checkpoint::Hook {
 public:
  ScheduledProcess(SharedRun& play, int index, ScheduledGroup* group, Script script = {})
      : play_(play), index_(index), group_(group), script_(script) {}
  checkpoint::Intervention before(const checkpoint::Operation& operation) override;
  void after(const checkpoint::Operation& operation, std::error_code error) override;
  /// Those that end with it, itself included.
  void ends_with(std::vector<ScheduledProcess*> job) { job_ = std::move(job); }
  void end();
  /// Its script is at its end.
  void relent() { script_ = {}; }

  bool ended() const { return ended_; }
  bool acted() const { return acted_; }
  /// Operations that it came to while it lived.
  int64_t count() const { return count_; }
  const std::vector<checkpoint::OperationKind>& kinds() const { return kinds_; }

 private:
  checkpoint::Intervention injected(const checkpoint::Operation& operation);
  void note(const checkpoint::Operation& operation, std::error_code error, std::string mark);

  SharedRun& play_;
  int index_;
  ScheduledGroup* group_;
  Script script_;
  std::vector<ScheduledProcess*> job_;
  std::vector<checkpoint::OperationKind> kinds_;
  std::string mark_;
  int64_t count_ = 0;
  bool ended_ = false, acted_ = false, ends_after_ = false;
};

/// A timeline for the report.
std::vector<TimelineStep> timeline_of(const std::vector<Note>& notes, const std::vector<std::string>& processes);

}  // namespace lockstep::scheduler
