#pragma once
// Real ranks for a suite: runs of a rank program, one after the other, under the supervisor that `lockstep run` has (harness/run/supervisor.h).

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/run/supervisor.h"

namespace lockstep {

/// What a suite asks of one run beside its ranks' job.
struct RankRun {
  int world_size = 1;
  int processes = 0;                    ///< 0: one for each rank
  Thresholds thresholds = no_thresholds();  ///< how long a rank may stand still
  double failure_grace_s = 1, stop_grace_s = 1;
  double deadline_s = 60;               ///< after which all ranks are killed
  std::function<bool(int rank)> kills = nullptr;  ///< may the suite, or the rank itself at its wish, kill that rank? Empty: none

  /// Of ranks that may stand still for as long as the run lasts.
  static Thresholds no_thresholds();
};

class RankRuns {
 public:
  /// `work`: a folder of its own, which is emptied. The rank program is loaded at the first run. For one thread.
  RankRuns(std::string rank_program, std::string work, const volatile int* stop_requested);

  /// An empty folder for a run.
  std::string folder(const std::string& name) const;
  /// Writes `run_json` as the run's run.json, sealed, and supervises the run in `dir` to its end. Throws MachineError, and
  /// TrialDisturbed where a rank was killed that `asked.kills` does not name.
  EndedRun run(const std::string& dir, nlohmann::json run_json, const RankRun& asked, RunHooks hooks = {});
  /// To all ranks of the run that goes on; as lockstep passes a signal on.
  void signal(int number);

 private:
  std::string rank_program_, work_;
  const volatile int* stop_requested_;
  std::unique_ptr<Supervisor> supervisor_;
  std::string going_;
  int64_t runs_ = 0;
};

/// "rank 1: killed by signal 9; rank 0: status 1"
std::string in_words(const std::vector<RankEnd>& ends);

}  // namespace lockstep
