#pragma once
// Processes (ranks, runs) that share a disk in memory, one of them at a time, so that the order of all that they do is
// prescribed and the same each time.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::scheduler {

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

}  // namespace lockstep::scheduler
