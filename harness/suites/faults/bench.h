#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "harness/jobs/orders/faults/order.h"
#include "harness/suites/engine/suite.h"
#include "harness/verdict/trace/rank_result.h"

// What a run may leave behind when its processes have ended.

namespace lockstep::faults {

/// What is there before a run: sockets that listen, names of shared memory.
struct Before {
  std::set<std::string> listening, shared_memory;
};

/// Processes of the run's group; sockets that listen and were not there before, where a process of the group or none at all
/// holds them; new shared memory of LibTorch and Gloo; files in the run's folder that are none of a run's.
std::vector<std::string> left_behind(const Before& before, int group, const std::string& run_dir);

// Programs of the labelled suite on real ranks, under the supervisor that `lockstep run` has.

/// How a program ended, and what was seen of it. Times are seconds of the monotonic clock.
struct Played {
  EndedRun run;                       ///< as the supervisor saw it
  std::vector<RankResult> results;    ///< by rank; without a status, if it wrote none
  std::vector<double> error_at;       ///< by rank: when it had its error; 0: it had none, or no time to say so
  double acted_at = 0;                ///< when the fault was about to act; 0: it never was
  std::vector<std::string> left_behind;  ///< processes, sockets, shared memory, files
  int64_t saved_step = -1;            ///< of the last step that every rank has saved; -1: none
  int64_t finished_steps = 0;         ///< that every rank has finished
  bool finished() const;
};

/// Called every look while ranks live.
struct Ongoing {
  const HeartbeatFile& heartbeats;
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
    bool watches = true;             ///< false: a mistake: hangs are not looked for
  };
  explicit Bench(const Options& options);

  Played play(const Order& order, const Disturb& disturb = nullptr);
  /// Of the program that was played last, until the next one is: a rank's record, line by line.
  std::vector<std::string> record_of(int rank) const;

 private:
  Options options_;
  RankRuns runs_;
  int64_t rounds_ = 0;
  std::string dir_;
};

}  // namespace lockstep::faults
