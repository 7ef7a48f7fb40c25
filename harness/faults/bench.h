#pragma once
// A place where programs of the labelled suite run on real ranks and are watched as lockstep watches its own runs.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/fault_cases/order.h"
#include "harness/launch/failure.h"
#include "harness/launch/hang_watch.h"
#include "harness/launch/local/launcher.h"
#include "harness/trace/rank_result.h"

namespace lockstep::faults {

/// How a program ended, and what was seen of it. Times are seconds of the monotonic clock.
struct Played {
  std::vector<RankResult> results;    ///< by rank; without a status, if it wrote none
  std::vector<RankEnd> ends;          ///< in the order in which they came
  std::vector<double> ended_at;       ///< by rank; 0: never
  std::vector<double> error_at;       ///< by rank: when it had its error; 0: it had none, or no time to say so
  double acted_at = 0;                ///< when the fault was about to act; 0: it never was
  std::optional<Stalled> alarm;       ///< of the watch
  double alarm_at = 0;
  std::optional<RankFailure> failure; ///< as lockstep names it from ends and results
  double failure_at = 0;              ///< when the first process failed
  std::vector<std::string> flight;    ///< what the ranks' last collectives say of it
  std::vector<std::string> left_behind;  ///< processes, sockets, shared memory, files
  int64_t saved_step = -1;            ///< of the last step that every rank has saved; -1: none
  int64_t finished_steps = 0;         ///< that every rank has finished
  bool late = false;                  ///< it was killed at the deadline, which nobody should need
  double seconds = 0;
  bool finished() const;
};

/// Called every look while ranks live.
struct Ongoing {
  const BeatFile& beats;
  const std::vector<int>& pids;  ///< by rank
  double acted_at;
};
using Disturb = std::function<void(const Ongoing&)>;

class Bench {
 public:
  struct Options {
    std::string rank_program, work;  ///< `work`: a folder of its own, which is emptied
    double deadline_s = 20;
    const volatile int* stop_requested = nullptr;
    bool watches = true;             ///< false: a bench that sees no hang
  };
  explicit Bench(Options options);

  Played play(const Order& order, const Disturb& disturb = nullptr);
  /// Of the program that was played last, until the next one is: a rank's record, line by line.
  std::vector<std::string> record_of(int rank) const;

 private:
  struct Round;
  void take_events(Round& round);
  void look_after(Round& round, const Disturb& disturb);
  void finish(Round& round);

  Options options_;
  std::unique_ptr<LocalLauncher> launcher_;
  int64_t rounds_ = 0;
  std::string dir_;
};

}  // namespace lockstep::faults
