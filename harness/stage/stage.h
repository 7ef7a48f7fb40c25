#pragma once
// Actors (ranks, runs) that share a disk in memory, one of them at a time, so that the order of all that they do is
// prescribed and the same each time.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::stage {

/// Before its operation `at`, this actor stops and `to` goes on; the actor comes again when all others cannot, or,
/// with `soon`, right after `to` has ended or waits.
struct Preemption {
  int actor = 0;
  int64_t at = 0;
  int to = 0;
  bool soon = false;
};

/// What an actor is. A fiber is a hundred times faster where many programs share the cores; what starts threads of its own
/// (an asynchronous save) needs to be one.
enum class Engine { fibers, threads };

/// One of the actors has the turn, which it gives away when it waits, ends or is preempted. What the holder of the turn
/// writes, the next one reads: nothing else needs a lock.
class Stage {
 public:
  /// `order`: who has the turn first, and who comes before whom when several can go on.
  Stage(int actors, std::vector<int> order, Engine engine = Engine::fibers);
  explicit Stage(int actors);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Runs `play` once for each actor; returns when all have ended. What one of them throws comes from here.
  void run(const std::function<void(int actor)>& play);

  /// Called by the actor that has the turn.
  void give_way(int actor, int to, bool soon);
  /// Waits until `ready`, which is asked whenever a turn ends. False: nobody can go on, and this one is to give up.
  bool wait(int actor, std::function<bool()> ready);
  /// Stands still until all others have ended.
  void hang(int actor);

  /// Seconds of a clock that only `advance` moves: what slow operations take.
  double now_s() const { return now_s_; }
  /// Lets the time pass, and those go on who had waited for it.
  void advance(int actor, double seconds);
  /// Was there a moment at which nobody could go on?
  bool stalled() const { return stalled_; }

 private:
  struct Seat;
  int next();
  void pass(int from);
  void run_fibers(const std::function<void(int)>& play);
  void run_threads(const std::function<void(int)>& play);
  bool can_go(int actor) const;

  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<int> order_;
  Engine engine_;
  int turn_ = -1;
  double now_s_ = 0;
  bool stalled_ = false;
};

}  // namespace lockstep::stage
