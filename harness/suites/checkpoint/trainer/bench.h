#pragma once
// Real runs of a trainer that are started, disturbed and started again, under the supervisor that `lockstep run` has.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/suites/engine/rank_runs.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep::restarts {

/// What run.json tells ranks to do to their checkpoints; see harness/jobs/rank_checkpoints.h.
struct Planted {
  bool record = false;
  int rank = -1;
  int64_t operation = -1;
  int signal = 0;
  std::string not_saved = {}, not_restored = {};
  bool unchecked = false;
  std::string mistake = {};
};

/// How an attempt at a run ended.
struct Ended {
  std::vector<RankEnd> exits;  ///< in the order in which they came
  bool hung = false;           ///< it was killed at the deadline, or a rank stood still
  double seconds = 0;
  bool finished() const;        ///< every process with status 0
  /// "rank 1: killed by signal 9; rank 0: status 1"
  std::string in_words() const;
};

/// An attempt while it runs.
struct Going {
  const HeartbeatFile& heartbeats;
  const std::vector<int>& processes;  ///< by rank
  double since_started_s = 0;
  std::function<void(int signal)> signal_all;  ///< as lockstep passes a signal on
  std::function<void(int rank)> kill;
  /// Steps that the rank furthest ahead, or the one furthest behind, has finished; -1: it has not begun.
  int64_t most_steps() const;
  int64_t fewest_steps() const;
  bool all_began() const;  ///< every rank has reported itself at least once
};
using Disturb = std::function<void(const Going&)>;

class Bench {
 public:
  /// `work`: a folder of its own, which is emptied.
  Bench(std::string rank_program, std::string work, double deadline_s, const volatile int* stop_requested);

  /// An empty run's folder, or one that holds what another one left.
  std::string empty(const std::string& name);
  std::string copy(const std::string& from, const std::string& name);

  /// Starts the run in `dir`, going on where its checkpoints stand, and waits for all its ranks.
  Ended attempt(const std::string& dir, const RunConfig& config, const Planted& planted = {},
                const Disturb& disturb = nullptr);

 private:
  std::string work_;
  double deadline_s_;
  RankRuns runs_;
};

/// What an attempt's rank wrote at its end; its status is empty if it wrote nothing.
RankResult result_of(const std::string& dir, int rank);
std::string trace_of(const std::string& dir, int rank);

}  // namespace lockstep::restarts
