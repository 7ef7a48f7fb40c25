#pragma once
// The toy run as real processes, which can be killed and told to end.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "harness/suites/checkpoint/toy_trainer/run.h"

namespace lockstep::resume {

inline constexpr int kMostRanks = 16;

/// What a rank's process tells the others and whoever watches; memory that all of them share.
struct RankBoard {
  std::atomic<int64_t> process, reached, committed, began_at, ended_at, operations, sent_us;
  std::atomic<int> phase, exit_code, signals, refused, in_grace, killed;
  std::array<char, 400> problem;
};

class Board {
 public:
  Board();
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  RankBoard& rank(int at) const { return ranks_[at]; }
  std::atomic<int64_t>& launcher() const { return *launcher_; }
  void clear();
  /// The furthest step that any rank has taken; the last one that any was told is saved.
  int64_t reached(int ranks) const;
  int64_t committed(int ranks) const;

 private:
  void* memory_ = nullptr;
  RankBoard* ranks_ = nullptr;
  std::atomic<int64_t>* launcher_ = nullptr;
};

struct ProcessRun {
  toy::RunOptions options;
  int ranks = 1;
  bool sync = false;       ///< fsync takes its time
  bool signals = false;    ///< ranks take SIGTERM and SIGUSR1 as preemption
  int killed_rank = -1;    ///< that one is killed …
  int64_t killed_at = -1;  ///< … before its operation of that number: on files, in a collective of a save, or of a step
  std::function<void(int rank, toy::Phase phase, int64_t step)> on_phase = {};  ///< in the rank's process
};

/// Forks the ranks, which go on from the newest checkpoint. To be called from a process with one thread.
/// `on_start`: in this process, after each fork.
std::vector<pid_t> start_ranks(const ProcessRun& run, const Board& board,
                               const std::function<void(pid_t)>& on_start = {});

/// How processes ended, as waitpid tells; those that have not within the deadline are killed.
struct Ended {
  std::vector<int> statuses;
  bool hung = false;
};
Ended wait_for(const std::vector<pid_t>& processes, double deadline_s);

/// A launcher in a process of its own: it starts the ranks, hands signals on to them, waits for all of them, and ends
/// with their exit code, or with 1 if they do not end alike.
pid_t start_launcher(const ProcessRun& run, const Board& board);

/// Waits that long, or until `ready`.
void wait_ms(double ms, const std::function<bool()>& ready = {});

}  // namespace lockstep::resume
